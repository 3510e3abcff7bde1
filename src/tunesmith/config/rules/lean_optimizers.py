"""Rules about optimizers that need less memory: one at a time, where each of them works."""

from collections.abc import Iterator

from tunesmith.config.lean_optimizers import SPECIAL_OPTIMIZERS
from tunesmith.config.optimizers import IN_BACKWARD_ALONE
from tunesmith.config.rules.registry import Finding, Question, rule

_UNDER_GALORE = ("adamw_torch", "adamw_torch_fused", "adamw_8bit", "adamw_bnb_8bit", "adafactor")
_ADAMW = ("adamw_torch", "adamw_torch_fused")
_DETAILS = {
    "galore_": "use_galore",
    "apollo_": "use_apollo",
    "badam_": "use_badam",
}


@rule()
def one_optimizer(question: Question) -> Iterator[Finding]:
    """A run has one optimizer, and a switch for one means that `optim` says nothing else."""
    on = [key for key in SPECIAL_OPTIMIZERS if question.config.value(key)]
    if len(on) > 1:
        yield Finding(tuple(on), f"{', '.join(question.cite(key) for key in on)} are several optimizers; keep one.")
        return
    optim = question.config.training.optim
    for key in on:
        allowed = _UNDER_GALORE if key == "use_galore" else _ADAMW
        if question.is_set("optim") and optim not in allowed:
            yield Finding(
                (key, "optim"),
                f"{question.cite(key)} and {question.cite('optim')} are two optimizers; allowed in `optim` is "
                f"{', '.join(allowed)}.",
            )


@rule()
def details_need_their_optimizer(question: Question) -> Iterator[Finding]:
    """Details of an optimizer that is off mean nothing."""
    for prefix, switch in _DETAILS.items():
        if question.config.value(switch):
            continue
        for key in vars(question.config.training):
            if key.startswith(prefix) and question.is_set(key) and question.config.value(key) not in (False, None):
                yield Finding((key,), f"{question.cite(key)} has no effect without `{switch}: true`; set it too.")


@rule()
def lean_optimizers_train_whole_weights(question: Question) -> Iterator[Finding]:
    """What they save is memory for large matrices, which an adapter does not have."""
    kind = question.config.adapter.finetuning_type
    if kind in ("full", "freeze"):
        return
    for key in ("use_galore", "use_apollo", "use_badam", "use_adam_mini"):
        if question.config.value(key):
            yield Finding(
                (key, "finetuning_type"),
                f"{question.cite(key)} saves optimizer memory of whole weights, and {question.cite('finetuning_type')} "
                "has next to none; set `finetuning_type: full` or remove it.",
            )


@rule()
def updates_in_backward_need_one_pass(question: Question) -> Iterator[Finding]:
    """Parameters that change during a backward pass have no second one, and no moment with all gradients."""
    training = question.config.training
    key = training.backward_updater
    if key is None:
        return
    why = f"{question.cite(key)} updates each parameter during the backward pass"
    if training.gradient_accumulation_steps > 1:
        yield Finding(
            (key, "gradient_accumulation_steps"),
            f"{why}, so gradients cannot be added up over micro-batches; set `gradient_accumulation_steps: 1` and a "
            "larger `per_device_train_batch_size`.",
        )
    if training.per_device_train_batch_size == "auto":
        yield Finding(
            (key, "per_device_train_batch_size"),
            f"{why}, so the rows of a step have to fit at once, and `per_device_train_batch_size: auto` would add up "
            "what does not; give a number.",
        )
    if training.max_grad_norm > 0:
        yield Finding(
            (key, "max_grad_norm"),
            f"{why}, so gradients cannot be shortened together; set `max_grad_norm: 0`.",
        )
    if training.fp16:
        yield Finding((key, "fp16"), f"{why}, which the loss scaling of `fp16: true` cannot undo; use bf16.")
    if training.use_badam or training.use_muon or training.use_adam_mini:
        other = next(name for name in ("use_badam", "use_muon", "use_adam_mini") if question.config.value(name))
        yield Finding((key, other), f"{question.cite(key)} does not work with {question.cite(other)}; keep one.")


@rule()
def some_optimizers_know_one_rate(question: Question) -> Iterator[Finding]:
    """Packages that go over the model by themselves look at no groups of parameters."""
    training = question.config.training
    key = "optim" if training.optim in IN_BACKWARD_ALONE else None
    if training.use_badam and training.badam_mode == "layer":
        key = "use_badam"
    if key is None:
        return
    unheard = ["learning_rate_groups", "loraplus_lr_ratio"]
    unheard += ["weight_decay"] if key == "optim" else []
    for other in unheard:
        if question.config.value(other):
            yield Finding(
                (key, other),
                f"{question.cite(key)} treats all parameters alike, so {question.cite(other)} would have no effect; "
                "remove one of them.",
            )


@rule()
def some_optimizers_cannot_be_resumed(question: Question) -> Iterator[Finding]:
    """Two packages keep things that no checkpoint sees, so that a resumed run would learn something else."""
    training = question.config.training
    if not training.resume_from_checkpoint:
        return
    lost = {"use_badam": training.use_badam, "optim": training.optim == "grokadamw"}
    what = {"use_badam": "which block it was at", "optim": "its running means"}
    for key, is_asked in lost.items():
        if is_asked:
            yield Finding(
                (key, "resume_from_checkpoint"),
                f"{question.cite(key)} cannot go on from a checkpoint: its package does not save {what[key]}. Give the "
                "checkpoint as `model_name_or_path` to begin anew from its weights.",
            )
