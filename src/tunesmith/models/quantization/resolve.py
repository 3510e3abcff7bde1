"""What is done about the weights of a model: left exact, compressed while loading, or read as they are stored."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.integrations import is_deepspeed_zero3_enabled

from tunesmith.config import RunConfig
from tunesmith.errors import ModelError
from tunesmith.models.locations import ModelLocation
from tunesmith.models.patches.unpacked_weights import keep_weights_unpacked
from tunesmith.models.precision import Precision
from tunesmith.models.quantization.asked import build_compression
from tunesmith.models.quantization.exact_base import find_exact_base
from tunesmith.models.quantization.stored import (
    StoredQuantization,
    check_readable,
    check_trainable,
    find_stored_quantization,
)
from tunesmith.runtime.ranks import current_ranks


@dataclass(frozen=True, slots=True)
class Quantization:
    """Decision about the weights of one model."""

    title: str
    """What the weights are, in words."""

    loading: dict[str, Any]
    """Options for `from_pretrained`, the place of the weights included."""

    is_compressed: bool
    """Whether the weights stay compressed in memory."""

    note: str
    """For the plan."""

    after_loading: Callable[[PreTrainedModel], None] | None = None
    """What remains to be done with the loaded model."""

    is_stored: bool = False
    """Whether the checkpoint holds them like that."""

    needs_dequantizing: bool = False
    """Whether the weights have to be made exact after loading."""


def resolve_quantization(
    config: RunConfig,
    model_config: PreTrainedConfig,
    location: ModelLocation,
    device: torch.device,
    precision: Precision,
    *,
    is_trainable: bool,
    needs_exact: bool = False,
) -> Quantization | None:
    """Decide before loading; `None` means exact weights all the way.

    Args:
        config: Of the run.
        model_config: Of the model; says whether the weights are stored compressed.
        location: Where the model is.
        device: Where it will be.
        precision: Of the run.
        is_trainable: Whether something will be trained.
        needs_exact: Whether adapters are merged, so that compressed weights are of no use.

    Raises:
        ModelError: What is asked for cannot be done with these weights.
        MissingDependencyError: A library is missing.
    """
    stored = find_stored_quantization(model_config)
    if stored is not None:
        return _read_stored(config, stored, location, device, is_trainable=is_trainable, needs_exact=needs_exact)
    if config.quantization.quantization_bit is None or needs_exact:
        return None
    if location.kind == "gguf":
        raise ModelError(
            f"{config.cite('quantization_bit')}: the weights of a GGUF file are compressed already, and are made exact "
            "to be trained. Export it to a folder first, and compress that, or remove quantization_bit."
        )
    compression = build_compression(
        config.quantization, device, precision.compute_dtype, shards_weights=current_ranks().world_size > 1
    )
    return Quantization(
        title=compression.title,
        loading=_placed(compression.loading, device),
        is_compressed=True,
        note=f"frozen weights are kept as {compression.title}; export merges into the exact ones"
        if is_trainable
        else f"the weights are kept as {compression.title}",
        after_loading=compression.after_loading,
    )


def _placed(loading: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Say where compressed weights are made; under ZeRO-3, DeepSpeed deals them out itself."""
    if not loading or is_deepspeed_zero3_enabled():
        return loading
    return {**loading, "device_map": {"": device}}


def _read_stored(
    config: RunConfig,
    stored: StoredQuantization,
    location: ModelLocation,
    device: torch.device,
    *,
    is_trainable: bool,
    needs_exact: bool,
) -> Quantization:
    if config.quantization.quantization_bit is not None and not needs_exact:
        raise ModelError(
            f"{config.cite('quantization_bit')}: the weights of {location.name} are stored as {stored.title} already. "
            "Remove quantization_bit, or name the 16-bit model."
        )
    if is_trainable:
        check_trainable(stored, config.adapter.finetuning_type)
    elif needs_exact and stored.kind.exact_loading is None and not stored.kind.can_be_dequantized:
        raise ModelError(
            f"model_name_or_path: adapters cannot be merged into {location.name}, whose weights are stored as "
            f"{stored.title}. {_name_exact_base(location)}"
        )
    check_readable(stored)
    if stored.method == "bitsandbytes" and device.type == "cpu":
        keep_weights_unpacked()
    if stored.kind.exact_loading is not None:
        return Quantization(
            title=stored.title,
            loading=_placed({"quantization_config": stored.kind.exact_loading()}, device),
            is_compressed=False,
            note=f"the weights are stored as {stored.title} and made ordinary numbers while loading",
            is_stored=True,
        )
    return Quantization(
        title=stored.title,
        loading={} if is_deepspeed_zero3_enabled() else {"device_map": {"": device}},
        is_compressed=not needs_exact,
        note=_note_stored(stored, location, is_trainable),
        is_stored=True,
        needs_dequantizing=needs_exact,
    )


def _note_stored(stored: StoredQuantization, location: ModelLocation, is_trainable: bool) -> str:
    start = f"the weights are stored as {stored.title}"
    if not is_trainable:
        return start
    if stored.kind.can_be_dequantized:
        return f"{start}; export reads them back and merges the adapter into the result"
    return f"{start}: the adapter cannot be merged into them later. {_name_exact_base(location)}"


def _name_exact_base(location: ModelLocation) -> str:
    base = find_exact_base(location.name, location.path)
    if base is None:
        return "To merge, export with the 16-bit model that they were made from: model_name_or_path=THAT_MODEL."
    return f"To merge, export with the 16-bit model, which seems to be: model_name_or_path={base}"


def check_has_gradient(model: PreTrainedModel, quantization: Quantization) -> None:
    """Refuse a kind of weights through which transformers says no gradient goes.

    Raises:
        ModelError: Its quantizer is for running only.
    """
    if quantization.is_stored and quantization.is_compressed and not model.hf_quantizer.is_trainable:
        raise ModelError(
            f"model_name_or_path: weights stored as {quantization.title} can be run, and nothing can be trained beside "
            "them with the installed transformers. Name the 16-bit model, with quantization_bit: 4 if memory is short."
        )
