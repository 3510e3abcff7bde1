"""Rules about the model itself: where its weights come from, its number formats, and what it keeps of activations."""

from collections.abc import Iterator

from tunesmith.config.rules.registry import Finding, Question, rule


@rule()
def scratch_needs_full_tuning(question: Question) -> Iterator[Finding]:
    """An adapter beside random frozen weights learns nothing."""
    kind = question.config.adapter.finetuning_type
    if question.config.model.train_from_scratch and kind != "full":
        yield Finding(
            ("train_from_scratch", "finetuning_type"),
            f"`train_from_scratch: true` starts from random weights, and "
            f"{question.cite('finetuning_type')} leaves most of them as they are; set `finetuning_type: full`.",
        )


@rule()
def norms_are_in_half_precision(question: Question) -> Iterator[Finding]:
    """Without mixed precision nothing brings what exact norms give back to the type of the layers."""
    if question.config.model.upcast_layernorm and question.config.training.pure_bf16:
        yield Finding(
            ("upcast_layernorm", "pure_bf16"),
            "`upcast_layernorm: true` contradicts `pure_bf16: true`, which computes everything in bfloat16; keep one "
            "of them, or set `bf16: true` instead.",
        )


@rule()
def checkpointing_is_said_once(question: Question) -> Iterator[Finding]:
    """The two switches for gradient checkpointing must not disagree."""
    model = question.config.model
    if model.disable_gradient_checkpointing and model.gradient_checkpointing is True:
        yield Finding(
            ("disable_gradient_checkpointing", "gradient_checkpointing"),
            "`disable_gradient_checkpointing: true` contradicts `gradient_checkpointing: true`; keep one of them.",
        )
    if model.gradient_checkpointing == "selective" and model.use_reentrant_gc:
        yield Finding(
            ("gradient_checkpointing", "use_reentrant_gc"),
            "`gradient_checkpointing: selective` exists in PyTorch's newer implementation alone; remove "
            "`use_reentrant_gc`.",
        )
    off = model.disable_gradient_checkpointing or model.gradient_checkpointing is False
    if model.checkpoint_every > 1 and off:
        yield Finding(
            ("checkpoint_every",),
            f"{question.cite('checkpoint_every')} has no effect while gradient checkpointing is off; remove one of "
            "the two.",
        )
    if model.use_reentrant_gc and off:
        yield Finding(
            ("use_reentrant_gc",),
            "`use_reentrant_gc: true` has no effect while gradient checkpointing is off; remove one of the two.",
        )
