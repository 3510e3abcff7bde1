"""Rules about adapters that exist: gone on with, merged or combined."""

from collections.abc import Iterator

from tunesmith.config.peft_methods import PEFT_METHODS
from tunesmith.config.rules.registry import Finding, Question, rule


@rule()
def adapters_need_lora(question: Question) -> Iterator[Finding]:
    """An adapter cannot be continued by training whole weights."""
    adapter = question.config.adapter
    if adapter.adapter_name_or_path and adapter.finetuning_type not in PEFT_METHODS:
        yield Finding(
            ("adapter_name_or_path", "finetuning_type"),
            f"`adapter_name_or_path` is set with {question.cite('finetuning_type')}; adapters go on only with "
            "`finetuning_type: lora`. To train whole weights from there, export the merged model first.",
        )


@rule("export")
def combined_adapters_are_weighed(question: Question) -> Iterator[Finding]:
    """Adapters are combined where there are several, each with one weight."""
    export, adapters = question.config.export, question.config.adapter.adapter_name_or_path
    kind = export.adapter_combination
    if kind != "in_turn" and len(adapters) < 2:
        yield Finding(
            ("adapter_combination", "adapter_name_or_path"),
            f"`adapter_combination: {kind}` puts several adapters together, and `adapter_name_or_path` names "
            f"{len(adapters) or 'none'}; name them all or remove it.",
        )
    if export.adapter_weights and kind == "in_turn":
        yield Finding(
            ("adapter_weights", "adapter_combination"),
            "`adapter_weights` has no effect with `adapter_combination: in_turn`, which takes every adapter as it is; "
            "remove it or set another combination.",
        )
    elif export.adapter_weights and len(export.adapter_weights) != len(adapters):
        yield Finding(
            ("adapter_weights", "adapter_name_or_path"),
            f"`adapter_weights` has {len(export.adapter_weights)} values for {len(adapters)} adapters; "
            "give one for each.",
        )
    if question.is_set("adapter_density") and kind in ("in_turn", "linear", "cat", "svd"):
        yield Finding(
            ("adapter_density", "adapter_combination"),
            f"{question.cite('adapter_density')} has no effect with `adapter_combination: {kind}`, which leaves "
            "nothing out; remove it.",
        )


@rule()
def adapter_folder_is_of_an_adapter(question: Question) -> Iterator[Finding]:
    """A folder inside adapters means nothing without any."""
    if question.config.model.adapter_folder is not None and not question.config.adapter.adapter_name_or_path:
        yield Finding(
            ("adapter_folder",),
            f"{question.cite('adapter_folder')} is a folder inside `adapter_name_or_path`, which is empty; name the "
            "adapters or remove it.",
        )


@rule()
def new_adapter_needs_an_old_one(question: Question) -> Iterator[Finding]:
    """Without adapters to merge, every adapter is new."""
    adapter = question.config.adapter
    if adapter.create_new_adapter and adapter.finetuning_type in PEFT_METHODS and not adapter.adapter_name_or_path:
        yield Finding(
            ("create_new_adapter",),
            "`create_new_adapter: true` merges the adapters of `adapter_name_or_path`, which is empty; "
            "name them or remove `create_new_adapter`.",
        )
