"""From a loaded model to one whose trained part is chosen."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from tunesmith.config import AdapterConfig
from tunesmith.errors import ModelError
from tunesmith.models.adapters.freeze import apply_freeze
from tunesmith.models.adapters.lora import (
    add_lora,
    attach_adapter,
    continue_adapter,
    find_foreign_base,
    merge_adapters,
)


@dataclass(frozen=True, slots=True)
class AdaptedModel:
    """A model with its trained part chosen."""

    model: PreTrainedModel | PeftModel
    notes: tuple[str, ...]


def apply_adapters(
    model: PreTrainedModel,
    config: AdapterConfig,
    adapters: Sequence[str],
    *,
    trained_dtype: torch.dtype,
    is_trainable: bool,
    is_compressed: bool = False,
) -> AdaptedModel:
    """Merge or continue saved adapters, then choose what is trained.

    In training the last saved adapter is continued and the ones before are merged, unless `create_new_adapter` merges
    all and begins a new one. A model that is only run gets all of them merged.

    Args:
        model: The base model.
        config: Kind and shape of the tuning.
        adapters: Saved adapters in order.
        trained_dtype: Type that trained weights are brought to.
        is_trainable: False for a model that is only run: nothing is trainable then.
        is_compressed: Whether the weights are quantised. Nothing can be merged into them then, and a model that is
            only run keeps its adapter beside them.
    """
    base, given = model.name_or_path, tuple(adapters)
    adapters = list(adapters)
    continued = adapters.pop() if _continues(config, adapters, is_trainable) else None
    if is_compressed:
        attached = adapters.pop() if adapters and not is_trainable else None
        _check_nothing_to_merge(adapters)
        if attached is not None:
            wrapped = attach_adapter(model, attached).eval().requires_grad_(False)
            return AdaptedModel(wrapped, tuple(_note_foreign_bases(given, base)))
    model = merge_adapters(model, adapters)
    notes: list[str] = [f"merged into the weights first: {', '.join(adapters)}"] if adapters else []
    adapted: PreTrainedModel | PeftModel = model
    if not is_trainable:
        model.requires_grad_(False)
        return AdaptedModel(model.eval(), (*notes, *_note_foreign_bases(given, base)))
    if config.finetuning_type == "full":
        model.requires_grad_(True)
    elif config.finetuning_type == "freeze":
        apply_freeze(model, config)
    elif continued is not None:
        adapted = continue_adapter(model, continued)
        notes.append(f"training goes on with the adapter {continued}; its own rank and targets hold")
    else:
        adapted, more = add_lora(model, config)
        notes.extend(more)
    _cast_trained(adapted, trained_dtype)
    return AdaptedModel(adapted.train(), (*notes, *_note_foreign_bases(given, base)))


def _check_nothing_to_merge(adapters: Sequence[str]) -> None:
    if adapters:
        raise ModelError(
            f"adapter_name_or_path: {adapters[0]} cannot be merged into quantised weights. Merge it with `tunesmith "
            "export` first, without quantization_bit, and give the result as model_name_or_path."
        )


def _note_foreign_bases(adapters: Sequence[str], base: str) -> list[str]:
    return [
        f"the adapter {adapter} was trained on {foreign}, and is put on {base}"
        for adapter in adapters
        if (foreign := find_foreign_base(adapter, base)) is not None
    ]


def _continues(config: AdapterConfig, adapters: Sequence[str], is_trainable: bool) -> bool:
    return bool(adapters) and is_trainable and config.finetuning_type == "lora" and not config.create_new_adapter


def _cast_trained(model: nn.Module, dtype: torch.dtype) -> None:
    """Bring trained weights to their type: whole modules beside an adapter are copies in the type of the base."""
    num_trained = 0
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)
            num_trained += 1
    if num_trained == 0:
        raise ModelError(
            "finetuning_type: nothing is left to train. With freeze, raise freeze_trainable_layers or name "
            "freeze_extra_modules."
        )
