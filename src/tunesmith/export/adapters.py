"""Adapters into weights: one after the other, or several combined to one by peft first."""

import logging
from collections.abc import Sequence
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from torch import Tensor
from transformers import PreTrainedModel

from tunesmith.config.export import ExportConfig
from tunesmith.errors import ModelError
from tunesmith.export.probe import measure_logits
from tunesmith.models.adapters import attach_adapter
from tunesmith.models.adapters.lora import attach_further_adapter, find_merge_obstacle, note_foreign_bases
from tunesmith.models.adapters.record import BaseRecord
from tunesmith.models.adapters.stored import read_settings
from tunesmith.models.adapters.wrapper import ADAPTER
from tunesmith.models.probe import relative_difference

logger = logging.getLogger(__name__)

MERGE_TOLERANCE = 1e-3
"""Largest difference of logits that a float32 merge may make, as a share of the largest logit. Usually about 1e-6."""

_COMBINED = "combined"


def check_mergeable(adapters: Sequence[str], settings: ExportConfig) -> None:
    """Refuse what cannot be merged before any weights are loaded.

    Raises:
        ModelError: An adapter is of a kind without a merge, or of one that cannot be combined with others.
    """
    for adapter in adapters:
        if (obstacle := find_merge_obstacle(adapter)) is not None:
            raise ModelError(
                f"adapter_name_or_path: {adapter} cannot be merged: {obstacle}. Serve it unmerged, on its base model."
            )
        if settings.adapter_combination == "in_turn":
            continue
        config = read_settings(adapter)
        obstacle = "it is no LoRA adapter"
        if isinstance(config, LoraConfig):
            obstacle = "it has DoRA's magnitudes" if config.use_dora else ""
            obstacle = "it holds whole modules (modules_to_save)" if config.modules_to_save else obstacle
        if obstacle:
            raise ModelError(
                f"adapter_combination: {adapter} cannot be combined with others: {obstacle}. "
                "Set adapter_combination: in_turn."
            )


def merge_adapters(
    model: PreTrainedModel, adapters: Sequence[str], probe: Tensor, settings: ExportConfig, *, seed: int = 0
) -> tuple[PreTrainedModel, float | None]:
    """Merge adapters into a model, as `adapter_combination` says.

    Args:
        model: In float32, without adapters.
        adapters: Folders, in order.
        probe: Token ids to compare by. Shape [1, tokens].
        settings: How several adapters are put together.
        seed: Of what DARE leaves out.

    Returns:
        The model without adapters, and the largest relative difference that a merge made (`None` without adapters).
    """
    original = BaseRecord.of_base(model)
    if settings.adapter_combination != "in_turn" and len(adapters) > 1:
        note_foreign_bases(adapters, original)
        return _merge_checked(_combine(model, adapters, settings, seed), ", ".join(adapters), probe)
    largest: float | None = None
    for adapter in adapters:
        note_foreign_bases([adapter], original, BaseRecord.of_base(model))
        model, difference = _merge_checked(attach_adapter(model, adapter), adapter, probe)
        largest = max(difference, largest or 0.0)
    return model, largest


def _merge_checked(with_adapter: PeftModel, name: str, probe: Tensor) -> tuple[PreTrainedModel, float]:
    expected = measure_logits(with_adapter, probe)
    model: Any = with_adapter.merge_and_unload(safe_merge=True)
    difference = relative_difference(measure_logits(model, probe), expected)
    if not difference <= MERGE_TOLERANCE:
        raise ModelError(
            f"Merging the adapter {name} changes the model's logits by {difference:.2g} of their range, "
            f"and float32 rounding explains {MERGE_TOLERANCE:g} at most. The adapter's kind cannot be merged "
            "exactly: serve it unmerged, on its base model."
        )
    return model, difference


def _combine(model: PreTrainedModel, adapters: Sequence[str], settings: ExportConfig, seed: int) -> PeftModel:
    """Put all adapters on a model and make one of them, which alone is active then."""
    wrapped = attach_adapter(model, adapters[0])
    names = [ADAPTER]
    for number, adapter in enumerate(adapters[1:], start=2):
        names.append(f"adapter_{number}")
        attach_further_adapter(wrapped, adapter, names[-1])
    kind = settings.adapter_combination
    options: dict[str, Any] = {"combination_type": kind}
    if kind not in {"linear", "cat", "svd"}:
        options["density"] = settings.adapter_density
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            wrapped.add_weighted_adapter(names, list(_weights(adapters, settings)), _COMBINED, **options)
    except (ValueError, NotImplementedError) as error:  # other ranks, other modules
        raise ModelError(
            f"adapter_combination: {kind} is not possible for these adapters: {error}. Adapters of different ranks "
            "can be put together by svd, the kinds that end in _svd, and cat."
        ) from error
    wrapped.set_adapter(_COMBINED)
    for name in names:  # or merging would add them, too
        wrapped.delete_adapter(name)
    return wrapped


def _weights(adapters: Sequence[str], settings: ExportConfig) -> Sequence[float]:
    return settings.adapter_weights or [1.0] * len(adapters)
