"""What a user may not expect of settings that are allowed together, for the plan and `tunesmith config check`.

What contradicts something else is refused by a rule. What this run merely has no use for, as in a file that was written
for another run, is allowed and said here: nothing is ignored in silence.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from tunesmith.config.objective import COMPLETION_STAGES
from tunesmith.config.optimizers import ADAM_SETTINGS, OPTIMIZER_INPUTS
from tunesmith.config.peft_methods import PEFT_METHODS
from tunesmith.config.preference import REFERENCE_FREE_LOSSES, STAGES_OF_SETTINGS
from tunesmith.config.reference_policy import STAGES_WITH_REFERENCE

if TYPE_CHECKING:
    from tunesmith.config.run_config import RunConfig

QUANTIZATION_DETAILS = ("quantization_method", "quantization_type", "double_quantization")
"""Settings that have a meaning only together with `quantization_bit`."""

WITHOUT_WARM_UP = ("constant", "reduce_lr_on_plateau", "greedy")
"""Schedules that transformers starts at the full learning rate."""

_DRAWING = ("do_sample", "temperature", "top_p", "top_k")
_GENERATION = (*_DRAWING, "num_beams", "length_penalty", "max_length", "max_new_tokens", "repetition_penalty",
               "skip_special_tokens")  # fmt: skip
_EXPORT = ("export_dir", "export_size", "export_device", "adapter_combination", "adapter_weights", "adapter_density",
           "quantize")  # fmt: skip
_ADAPTER_SHAPE = ("lora_rank", "lora_alpha", "lora_dropout", "lora_rank_pattern", "lora_alpha_pattern", "lora_target",
                  "additional_target", "use_rslora", "use_dora", "init_lora_weights", "pissa_init", "pissa_iter",
                  "adapter_options", "oft_rank", "oft_block_size", "module_dropout")  # fmt: skip

Unused = tuple[Sequence[str], str]
"""Settings and why they are not used; those of them that nobody wrote are left out of the note."""


def find_notes(config: "RunConfig") -> Iterator[str]:
    """Yield one sentence for each thing worth knowing."""
    if config.data.max_samples is not None and config.packs:
        yield f"{config.cite('max_samples')} caps the rows of each data set first; then they are packed."
    if config.training.max_steps > 0 and config.origin("num_train_epochs").is_set and not config.data.streaming:
        yield f"{config.cite('max_steps')} decides the length; `num_train_epochs` is not used."
    if not config.runs:
        return
    if config.data.val_size and not _is_measured(config):
        yield f"{config.cite('val_size')} holds rows back, and nothing measures them; set `eval_strategy` or `do_eval`."
    if not config.data.ignore_pad_token_for_loss:
        yield (
            f"{config.cite('ignore_pad_token_for_loss')} learns padding, so the losses, that of the evaluation too, "
            "depend on the batch size."
        )
    yield from _about_schedules(config)
    for find in _UNUSED:
        for keys, reason in find(config):
            written = [config.cite(key) for key in dict.fromkeys(keys) if _says_something(config, key)]
            if written:
                yield f"{', '.join(written)} {'is' if len(written) == 1 else 'are'} not used: {reason}."


def _about_schedules(config: "RunConfig") -> Iterator[str]:
    training = config.training
    if training.optim.startswith("schedule_free") and not training.lr_scheduler_type.startswith("constant"):
        yield (
            f"{config.cite('optim')} does without a schedule, and {config.cite('lr_scheduler_type')} lowers its "
            "learning rate all the same; `lr_scheduler_type: constant` is what it is made for."
        )


def _says_something(config: "RunConfig", key: str) -> bool:
    """Whether somebody wrote a value that asks for something, rather than the word for leaving it alone."""
    value = config.value(key)
    asks = bool(value) and value != "auto"
    return config.origin(key).is_set and value is not None and (asks or config.is_changed(key))


def _is_measured(config: "RunConfig") -> bool:
    """Whether the rows for evaluation are used: for a loss, or for questions."""
    training = config.training
    return training.do_predict or training.do_eval or training.eval_on_start or training.eval_strategy != "no"


def _predicts(config: "RunConfig") -> bool:
    """Whether answers are generated and compared, at the end or in evaluation."""
    return config.training.predict_with_generate and _is_measured(config)


def _without_tracker(config: "RunConfig") -> Iterator[Unused]:
    trackers = set(config.training.report_to) - {"none"}
    if "tensorboard" not in trackers:
        yield ("logging_dir",), "it is the folder of TensorBoard's files, and `report_to` does not name tensorboard"
    if not trackers:
        yield ("run_name", "project"), "`report_to` names no tracker"
    elif trackers.isdisjoint({"trackio", "all"}):
        yield (
            ("project",),
            "of the trackers, only trackio takes its project from here, and `report_to` does not name it",
        )


def _without_checkpoints(config: "RunConfig") -> Iterator[Unused]:
    strategy = config.training.save_strategy
    if strategy == "no":
        yield ("save_steps", "save_total_limit", "save_only_model"), "no checkpoints are written (`save_strategy: no`)"
    elif strategy != "steps":
        when = "after every epoch" if strategy == "epoch" else "after the best evaluations"
        yield ("save_steps",), f"checkpoints are written {when} ({config.cite('save_strategy')})"


def _without_evaluation(config: "RunConfig") -> Iterator[Unused]:
    if not _is_measured(config):
        asking = "`eval_strategy` is no, and neither `do_eval` nor `do_predict` is set"
        keys = ["predict_with_generate", "compute_accuracy"]
        if config.training.sample_steps is None:  # samples are drawn from these rows, in batches of this size
            keys += ["eval_dataset"] if _may_precompute(config) else ["eval_dataset", "per_device_eval_batch_size"]
        yield keys, f"nothing is measured ({asking})"


def _may_precompute(config: "RunConfig") -> bool:
    """Whether a reference may go over all rows beforehand, in batches of the size of evaluations."""
    return config.objective.stage in STAGES_WITH_REFERENCE and config.reference.precompute_reference is not False


def _without_choice(config: "RunConfig") -> Iterator[Unused]:
    training = config.training
    by_metric = (
        training.load_best_model_at_end,
        training.early_stopping_steps is not None,
        training.save_strategy == "best",
        training.save_total_limit is not None,  # the best checkpoint is kept
        training.lr_scheduler_type in ("reduce_lr_on_plateau", "greedy"),
    )
    if training.eval_strategy == "no" or not any(by_metric):
        yield ("metric_for_best_model", "greater_is_better"), "nothing in this run goes by the best evaluation"


def _without_answers(config: "RunConfig") -> Iterator[Unused]:
    generation, samples = config.generation, config.training.sample_steps is not None
    if not _predicts(config):
        if not samples:
            yield _GENERATION, "this run generates no answers"
            return
        greedy = (*_DRAWING, "num_beams", "length_penalty", "skip_special_tokens")
        yield greedy, "samples during training take the likeliest token each time"
    elif not generation.do_sample or generation.temperature == 0:
        yield ("temperature", "top_p", "top_k"), "nothing is drawn at random"
    elif generation.num_beams == 1:
        yield ("length_penalty",), "there is no beam search (`num_beams` is 1)"
    if generation.max_new_tokens:
        yield ("max_length",), "`max_new_tokens` limits the answers"


def _for_other_commands(config: "RunConfig") -> Iterator[Unused]:
    yield ("infer_dtype",), "it is for chat and export"
    yield _EXPORT, "only `tunesmith export` reads such settings"


def _without_adam(config: "RunConfig") -> Iterator[Unused]:
    taken = OPTIMIZER_INPUTS[config.training.optim].settings
    yield [key for key in ADAM_SETTINGS if key not in taken], f"{config.cite('optim')} has no such parameters"


def _without_warm_up(config: "RunConfig") -> Iterator[Unused]:
    schedule = config.training.lr_scheduler_type
    if schedule in WITHOUT_WARM_UP:
        hint = "; `constant_with_warmup` has one" if schedule == "constant" else ""
        yield ("warmup_steps", "warmup_ratio"), f"{config.cite('lr_scheduler_type')} has no warm-up{hint}"


def _with_a_named_folder(config: "RunConfig") -> Iterator[Unused]:
    if config.loading.tokenized_path is not None:
        yield ("dataset_cache_dir",), f"prepared rows go to {config.cite('tokenized_path')}"


def _while_streaming(config: "RunConfig") -> Iterator[Unused]:
    data = config.data
    if not data.streaming:
        yield ("buffer_size",), "it is the shuffle buffer of `streaming: true`"
        return
    if config.loading.disable_shuffling or config.loading.train_sampling_strategy == "sequential":
        yield ("buffer_size",), "rows are not shuffled"
    if not data.eval_dataset:  # whose rows are prepared and loaded as those of other runs are
        yield (
            ("preprocessing_num_workers", "overwrite_cache", "dataset_cache_dir"),
            "`streaming: true` keeps nothing, and its workers are those of `dataloader_num_workers`",
        )
        yield ("dataloader_persistent_workers",), "a stream is one epoch to its workers (`streaming: true`)"


def _with_a_token_budget(config: "RunConfig") -> Iterator[Unused]:
    if config.loading.tokens_per_device_batch is not None:
        keys = ("per_device_train_batch_size", "group_by_length", "dataloader_drop_last")
        yield keys, f"micro-batches are made by tokens ({config.cite('tokens_per_device_batch')})"


def _without_conversations(config: "RunConfig") -> Iterator[Unused]:
    if config.objective.stage == "pt":
        keys = ("template", "enable_thinking", "turn_order_policy")
        yield keys, "plain text (`stage: pt`) is learnt as it is"


def _without_preferences(config: "RunConfig") -> Iterator[Unused]:
    stage, losses = config.objective.stage, config.preference.pref_loss
    keys = [field.name for field in fields(config.preference)]
    yield (
        [key for key in keys if stage not in STAGES_OF_SETTINGS.get(key, ("dpo",))],
        f"it is not for {config.cite('stage')}",
    )
    if stage == "dpo":
        if "simpo" not in losses:
            yield ("simpo_gamma",), "`pref_loss` has no simpo"
        if "discopop" not in losses:
            yield ("discopop_tau",), "`pref_loss` has no discopop"


def _without_reference(config: "RunConfig") -> Iterator[Unused]:
    stage, losses = config.objective.stage, config.preference.pref_loss
    keys = [field.name for field in fields(config.reference)]
    if stage not in STAGES_WITH_REFERENCE:
        yield keys, f"{config.cite('stage')} has no reference policy"
    elif stage == "dpo" and set(losses) <= set(REFERENCE_FREE_LOSSES) and not config.preference.pref_bco_weight:
        yield keys, f"{config.cite('pref_loss')} needs no reference policy"


def _without_tokens(config: "RunConfig") -> Iterator[Unused]:
    stage = config.objective.stage
    if stage in COMPLETION_STAGES:
        yield (
            ("label_smoothing_factor", "z_loss", "compute_accuracy"),
            f"the loss of {config.cite('stage')} is of whole completions, not of tokens",
        )
        yield (
            ("lora_dropout",),
            f"with {config.cite('stage')} dropout is off, or a policy would differ from its reference by chance",
        )


def _without_quantization(config: "RunConfig") -> Iterator[Unused]:
    quantization = config.quantization
    if quantization.quantization_bit is None:
        yield QUANTIZATION_DETAILS, "weights are compressed only with `quantization_bit`"
    elif (quantization.quantization_method, quantization.quantization_bit) != ("bnb", 4):
        keys = ["double_quantization"] + (["quantization_type"] if quantization.quantization_type == "nf4" else [])
        yield keys, "only the 4 bits of bitsandbytes have such a choice"


def _without_new_tokens(config: "RunConfig") -> Iterator[Unused]:
    model = config.model
    if not (model.add_tokens or model.add_special_tokens or model.new_special_tokens_config or model.resize_vocab):
        yield ("init_special_tokens",), "no tokens are added"


def _with_an_old_adapter(config: "RunConfig") -> Iterator[Unused]:
    adapter = config.adapter
    if adapter.finetuning_type in PEFT_METHODS and adapter.adapter_name_or_path and not adapter.create_new_adapter:
        yield _ADAPTER_SHAPE, f"training goes on with {adapter.adapter_name_or_path[-1]}, which has a shape of its own"


def _without_a_mixture(config: "RunConfig") -> Iterator[Unused]:
    if len(config.data.dataset) < 2:
        yield ("mix_strategy", "interleave_probs"), "there is nothing to mix: `dataset` names one data set"


def _without_a_hub(config: "RunConfig") -> Iterator[Unused]:
    name = config.model.model_name_or_path
    if name and Path(name).exists():
        yield ("model_revision",), "the model is on this disk"


_UNUSED: tuple[Callable[["RunConfig"], Iterator[Unused]], ...] = (
    _without_a_hub,
    _without_a_mixture,
    _without_new_tokens,
    _with_an_old_adapter,
    _without_quantization,
    _with_a_token_budget,
    _without_conversations,
    _without_preferences,
    _without_reference,
    _without_tokens,
    _without_adam,
    _without_warm_up,
    _without_evaluation,
    _without_choice,
    _without_checkpoints,
    _without_tracker,
    _without_answers,
    _for_other_commands,
    _while_streaming,
    _with_a_named_folder,
)
