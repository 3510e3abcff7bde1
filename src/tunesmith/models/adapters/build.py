"""Settings to peft's configuration of a method, and the model with a new adapter."""

import dataclasses
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from transformers import PreTrainedModel

from tunesmith.config import AdapterConfig
from tunesmith.config.peft_methods import PEFT_METHODS, PeftMethod
from tunesmith.errors import ModelError
from tunesmith.models.adapters.modules import list_norms, matches, resolve_module_names, sorted_leaves
from tunesmith.models.adapters.options import check_adapter_options, find_config_class
from tunesmith.models.adapters.record import BaseRecord
from tunesmith.models.adapters.targets import LoraTargets, resolve_targets
from tunesmith.models.adapters.wrapper import KeptAdapter, keep_adapter
from tunesmith.models.reward.build import SCORE, is_reward_model

_DIRECT = frozenset({"gaussian", "orthogonal"})
"""Values of `init_lora_weights` that need nothing but the adapter's own shape; the others come later, see `begin`."""

_VIRTUAL_TOKENS = 20
"""Length of a learnt prompt, for which peft has no default; `adapter_options` sets another."""

_UNKNOWN_STEPS = 1_000_000
"""Until training says how many there will be: peft asks AdaLoRA's configuration for them."""


def add_adapter(
    model: PreTrainedModel, config: AdapterConfig, record: BaseRecord
) -> tuple[KeptAdapter, tuple[str, ...]]:
    """Put a new adapter on a model.

    Args:
        model: The base model.
        config: Kind and shape.
        record: Of the base model, saved with the adapter.

    Returns:
        The wrapped model, and notes for the plan.

    Raises:
        ConfigError: `adapter_options` do not suit the method.
        ModelError: A target matches nothing, or cannot be combined with another setting.
    """
    check_adapter_options(config)
    kind = config.finetuning_type
    method = PEFT_METHODS[kind]
    # Full names, because peft compares ends of words: its "norm" is every input_layernorm too.
    copies = resolve_module_names(model, config.additional_target, "additional_target")
    targets = _resolve_places(model, config, method)
    _check_places_differ(targets, copies)
    settings = {**_settings(model, config, targets, copies), **config.adapter_options}
    try:
        peft_config = find_config_class(kind)(**settings)
        with renamed_flag_ignored():
            wrapped = get_peft_model(model, peft_config, autocast_adapter_dtype=True)
    except (ValueError, TypeError, ImportError, AssertionError, RuntimeError, LookupError, AttributeError) as error:
        # peft's word on sizes that do not divide, options that contradict each other, modules it has no adapter for,
        # and where it has none: what it stumbles on in compressed weights that a method cannot compute with
        where = "lora_target" if kind == "lora" and not config.adapter_options else f"finetuning_type: {kind}"
        raise ModelError(f"{where}: {_one_line(error)}") from error
    if isinstance(peft_config, LoraConfig):
        _check_patterns(wrapped, config)
    kept = keep_adapter(wrapped, record, begins=config.init_lora_weights if kind == "lora" else "default")
    return kept, (*targets.notes, *_note_untied(model, config, copies))


def _resolve_places(model: PreTrainedModel, config: AdapterConfig, method: PeftMethod) -> LoraTargets:
    if method.place == "none":
        return LoraTargets((), (), ())
    is_default = config.lora_target == ("all",)
    if method.place == "norms" and is_default:
        return LoraTargets(tuple(list_norms(model)), (), ())
    if method.place == "embeddings" and is_default:
        embeddings = model.get_input_embeddings()
        return LoraTargets(tuple(name for name, module in model.named_modules() if module is embeddings), (), ())
    targets = resolve_targets(model, config.lora_target, with_experts=config.finetuning_type == "lora")
    if targets.parameters:
        _check_experts(config)
    return targets


def _check_places_differ(targets: LoraTargets, copies: Sequence[str]) -> None:
    """Refuse modules that would be trained whole and get an adapter too; peft does the former without a word."""
    both = [name for name in copies if any(matches(name, target) for target in targets.modules)]
    if both:
        names = ", ".join(sorted_leaves(both))
        raise ModelError(
            f"additional_target: {names} would be trained whole, and lora_target puts adapters on the same modules. "
            "Name them in one of the two."
        )


def _check_experts(config: AdapterConfig) -> None:
    way_out = "or leave the experts out with lora_target: all-linear"
    if config.finetuning_type != "lora":
        raise ModelError(f"lora_target: {config.finetuning_type} cannot be put on fused experts. Take them out of it.")
    if config.lora_dropout:
        raise ModelError(
            f"lora_dropout: adapters on fused experts cannot have dropout. Set lora_dropout: 0, {way_out}."
        )
    if config.use_dora:
        raise ModelError(f"use_dora: is not possible on fused experts. Set use_dora: false, {way_out}.")
    if config.init_lora_weights != "default":
        raise ModelError(
            f"init_lora_weights: {config.init_lora_weights} is not possible on fused experts. "
            f"Set init_lora_weights: default, {way_out}."
        )


def _settings(
    model: PreTrainedModel, config: AdapterConfig, targets: LoraTargets, copies: Sequence[str]
) -> dict[str, Any]:
    kind, method = config.finetuning_type, PEFT_METHODS[config.finetuning_type]
    is_reward = is_reward_model(model)
    if is_reward and method.place == "none":
        raise ModelError(f"finetuning_type: {kind} has no place for the score head of a reward model. Use lora.")
    copies = [*copies, *([SCORE] if is_reward else [])]
    settings: dict[str, Any] = {"task_type": TaskType.SEQ_CLS if is_reward else TaskType.CAUSAL_LM}
    known = {field.name for field in dataclasses.fields(find_config_class(kind))}
    takes_copies = method.place != "none" and "modules_to_save" in known
    if copies and not takes_copies:
        raise ModelError(f"additional_target: {kind} trains no modules besides its own. Remove it.")
    if takes_copies:
        settings["modules_to_save"] = list(copies) or None
    if method.place != "none":
        settings["target_modules"] = list(targets.modules)
    if kind == "lora":
        settings |= {
            "r": config.lora_rank,
            "lora_alpha": _whole(config.lora_alpha) if config.lora_alpha is not None else 2 * config.lora_rank,
            "lora_dropout": config.lora_dropout,
            "target_parameters": list(targets.parameters) or None,
            "use_rslora": config.use_rslora,
            "use_dora": config.use_dora,
            "init_lora_weights": config.init_lora_weights if config.init_lora_weights in _DIRECT else True,
            "rank_pattern": {name: _whole(rank) for name, rank in config.lora_rank_pattern.items()},
            "alpha_pattern": {name: _whole(alpha) for name, alpha in config.lora_alpha_pattern.items()},
            "ensure_weight_tying": _touches_tied_weights(model, copies),
        }
    elif kind == "oft":
        settings |= {
            "r": config.oft_rank,
            "oft_block_size": config.oft_block_size,
            "module_dropout": config.module_dropout,
        }
    elif kind == "adalora":
        settings |= {"total_step": _UNKNOWN_STEPS}
    elif kind == "ia3":
        settings |= {"feedforward_modules": _feed_forward(targets.modules)}
    elif method.is_prompt:
        settings |= {"num_virtual_tokens": _VIRTUAL_TOKENS}
        if kind == "p_tuning":
            settings |= {"encoder_hidden_size": int(model.config.get_text_config().hidden_size)}
    return settings


def _whole(number: Any) -> Any:
    """Return whole numbers as such: other programs read the adapter's settings, and some want them so."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _feed_forward(modules: Sequence[str]) -> list[str]:
    """Return the targets whose input IA3 scales, as its authors do: the last projection of a feed-forward layer."""
    last = ("down_proj", "c_proj", "fc2", "fc_out", "dense_4h_to_h", "w2")
    return [name for name in modules if name.rpartition(".")[2] in last and "attn" not in name]


def _check_patterns(model: PeftModel, config: AdapterConfig) -> None:
    """Refuse patterns that fit no adapter, which peft would leave without a word."""
    adapted = [name.partition(".lora_A.")[0] for name, _ in model.named_parameters() if ".lora_A." in name]
    for setting, patterns in (
        ("lora_rank_pattern", config.lora_rank_pattern),
        ("lora_alpha_pattern", config.lora_alpha_pattern),
    ):
        for pattern in patterns:
            if not any(re.match(rf"(.*\.)?({pattern})$", name) for name in adapted):
                leaves = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in adapted))
                raise ModelError(f"{setting}: `{pattern}` fits no adapter. There are adapters on {leaves}.")


def _touches_tied_weights(model: PreTrainedModel, names: Sequence[str]) -> bool:
    """Whether the trained copies include an embedding that the output head shares; both must stay one then."""
    if not model.config.get_text_config().tie_word_embeddings:
        return False
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    return any(module is end for name, module in model.named_modules() if name in names for end in ends)


def _note_untied(model: PreTrainedModel, config: AdapterConfig, copies: Sequence[str]) -> Iterator[str]:
    if config.finetuning_type != "lora" and _touches_tied_weights(model, copies):
        yield (
            "embedding and head shared their weights and do not any more: only beside LoRA can they be trained as one. "
            "The merged model is larger by one of them"
        )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def renamed_flag_ignored() -> Iterator[None]:
    """Keep quiet about a name that peft 0.21 asks for and transformers 5.24 has renamed; no user can act on it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        yield
