"""From a loaded model to one whose trained part is chosen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from tunesmith.config import AdapterConfig
from tunesmith.config.peft_methods import PEFT_METHODS
from tunesmith.errors import ModelError
from tunesmith.models.adapters.build import add_adapter
from tunesmith.models.adapters.freeze import apply_freeze
from tunesmith.models.adapters.lora import (
    attach_adapter,
    continue_adapter,
    find_merge_obstacle,
    merge_adapters,
    note_foreign_bases,
)
from tunesmith.models.adapters.record import BaseRecord
from tunesmith.models.adapters.vllm import judge_adapted


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
    all and begins a new one. A model that is only run gets all of them merged, but for learnt prompts.

    Args:
        model: The base model.
        config: Kind and shape of the tuning.
        adapters: Saved adapters in order.
        trained_dtype: Type that trained weights are brought to.
        is_trainable: False for a model that is only run: nothing is trainable then.
        is_compressed: Whether the weights are quantised. Nothing can be merged into them then, and a model that is
            only run keeps its adapter beside them.
    """
    saved = list(adapters)
    original = BaseRecord.of_base(model)
    if not is_trainable:
        return _apply_to_run(model, saved, original, is_compressed=is_compressed)
    continued = saved.pop() if _continues(config, saved) else None
    if is_compressed:
        _check_nothing_to_merge(saved)
    notes = [*note_foreign_bases(saved, original), *_note_merged(saved)]
    model = merge_adapters(model, saved)
    record = replace(BaseRecord.of_base(model), merged=tuple(saved)) if saved else original
    adapted: PreTrainedModel | PeftModel = model
    if config.finetuning_type == "full":
        model.requires_grad_(True)
    elif config.finetuning_type == "freeze":
        notes += apply_freeze(model, config)
    elif continued is not None:
        notes += note_foreign_bases([continued], original, record)
        adapted = continue_adapter(model, continued, record)
        notes.append(f"training goes on with the adapter {continued}; its own kind, rank and targets hold")
    else:
        adapted, more = add_adapter(model, config, record)
        notes += more
    if isinstance(adapted, PeftModel) and (note := judge_adapted(adapted).render_note()):
        notes.append(note)
    _cast_trained(adapted, trained_dtype)
    return AdaptedModel(adapted.train(), tuple(notes))


def _check_nothing_to_merge(adapters: Sequence[str]) -> None:
    if adapters:
        raise ModelError(
            f"adapter_name_or_path: {adapters[0]} cannot be merged into quantised weights. Merge it with `tunesmith "
            "export` first, without quantization_bit, and give the result as model_name_or_path."
        )


def _apply_to_run(
    model: PreTrainedModel, adapters: list[str], original: BaseRecord, *, is_compressed: bool
) -> AdaptedModel:
    """Merge adapters into a model that answers; the last one stays apart where it cannot be added."""
    stays = bool(adapters) and (is_compressed or find_merge_obstacle(adapters[-1]) is not None)
    apart = adapters.pop() if stays else None
    if is_compressed:
        _check_nothing_to_merge(adapters)
    notes = [*note_foreign_bases(adapters, original), *_note_merged(adapters)]
    adapted: PreTrainedModel | PeftModel = merge_adapters(model, adapters)
    if apart is not None:
        bases = (original, BaseRecord.of_base(adapted)) if adapters else (original,)
        notes += note_foreign_bases([apart], *bases)
        adapted = attach_adapter(adapted, apart)
    adapted.requires_grad_(False)
    return AdaptedModel(adapted.eval(), tuple(notes))


def _note_merged(adapters: Sequence[str]) -> list[str]:
    return [f"merged into the weights first: {', '.join(adapters)}"] if adapters else []


def _continues(config: AdapterConfig, adapters: Sequence[str]) -> bool:
    return bool(adapters) and config.finetuning_type in PEFT_METHODS and not config.create_new_adapter


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
