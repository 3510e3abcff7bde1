"""The settings of `quantization_bit` as options of the libraries that compress weights."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import BitsAndBytesConfig, EetqConfig, PreTrainedModel, TorchAoConfig

from tunesmith.config.quantization import QuantizationConfig
from tunesmith.errors import ModelError
from tunesmith.models.adapters.modules import list_linears
from tunesmith.models.patches.unpacked_weights import keep_weights_unpacked
from tunesmith.models.quantization.fp8 import FLOAT8_CAPABILITY
from tunesmith.models.quantization.hqq import compress_linears
from tunesmith.runtime.optional import require

_GROUP_SIZE = 32
"""Weights that share a scale in torchao's 4 bits; small, as the widths of small models divide by little else."""


@dataclass(frozen=True, slots=True)
class Compression:
    """How a library is told to compress."""

    title: str
    """What the weights become, in words."""

    loading: dict[str, Any]
    """Options for `from_pretrained`."""

    after_loading: Callable[[PreTrainedModel], None] | None = None
    """What remains to be done with the loaded model."""


def build_compression(
    config: QuantizationConfig, device: torch.device, compute_dtype: torch.dtype, *, shards_weights: bool
) -> Compression:
    """Return the options for one setting of `quantization_bit`.

    Args:
        config: With `quantization_bit` set.
        device: Where the model will be.
        compute_dtype: Type that products are computed in.
        shards_weights: Whether processes may cut the weights into pieces, which only float storage survives.

    Raises:
        MissingDependencyError: The library is not installed.
        ModelError: The method cannot run on this device.
    """
    build = {"bnb": _bits_and_bytes, "torchao": _torchao, "hqq": _hqq, "eetq": _eetq}[config.quantization_method]
    return build(config, device, compute_dtype, shards_weights)


def _bits_and_bytes(
    config: QuantizationConfig, device: torch.device, compute_dtype: torch.dtype, shards_weights: bool
) -> Compression:
    require("bitsandbytes", "bitsandbytes", "keep weights in 4 or 8 bits")
    if config.quantization_bit == 8:
        _let_bitsandbytes_say_once()
        return Compression(
            "8-bit integers (bitsandbytes)", {"quantization_config": BitsAndBytesConfig(load_in_8bit=True)}
        )
    if device.type == "cpu":
        keep_weights_unpacked()
    storage = compute_dtype if shards_weights else torch.uint8
    doubly = " with compressed scales" if config.double_quantization else ""
    return Compression(
        f"4-bit {config.quantization_type}{doubly} (bitsandbytes)",
        {
            "quantization_config": BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type=config.quantization_type,
                bnb_4bit_use_double_quant=config.double_quantization,
                bnb_4bit_compute_dtype=compute_dtype,
                bnb_4bit_quant_storage=storage,
            )
        },
    )


def _torchao(
    config: QuantizationConfig, device: torch.device, compute_dtype: torch.dtype, shards_weights: bool
) -> Compression:
    torchao = require("torchao.quantization", "torchao", "keep weights in torchao's formats")
    if config.quantization_type == "fp8":
        if device.type == "cuda" and torch.cuda.get_device_capability(device) < FLOAT8_CAPABILITY:
            found = ".".join(map(str, torch.cuda.get_device_capability(device)))
            raise ModelError(
                f"quantization_type: fp8 needs a GPU of compute capability 8.9 or newer, and this one has {found}. "
                "Remove quantization_type: integers of 8 bits lose as little."
            )
        return Compression(
            "8-bit floats (torchao)", {"quantization_config": TorchAoConfig(torchao.Float8WeightOnlyConfig())}
        )
    if config.quantization_bit == 8:
        return Compression(
            "8-bit integers (torchao)", {"quantization_config": TorchAoConfig(torchao.Int8WeightOnlyConfig())}
        )
    granularity = require("torchao.quantization.granularity", "torchao", "keep weights in torchao's formats")
    # One integer per byte: torchao's packed format has no backward pass, and does not exist for CPUs.
    int4 = vars(torch)["int4"]  # torch's stubs do not know it
    kind = torchao.IntxWeightOnlyConfig(weight_dtype=int4, granularity=granularity.PerGroup(_GROUP_SIZE))

    def compress(model: PreTrainedModel) -> None:
        names = {linear.name for linear in list_linears(model)}
        torchao.quantize_(model, kind, filter_fn=lambda module, name: name in names)

    # After loading, as transformers 5.24 takes no weights of torchao below 8 bits for trainable.
    return Compression(f"4-bit integers in groups of {_GROUP_SIZE}, one per byte (torchao)", {}, compress)


def _hqq(
    config: QuantizationConfig, device: torch.device, compute_dtype: torch.dtype, shards_weights: bool
) -> Compression:
    require("hqq.core.quantize", "hqq", "keep weights in HQQ's formats")
    bits = config.quantization_bit
    assert bits is not None, "asked for"

    def compress(model: PreTrainedModel) -> None:
        compress_linears(model, bits=bits, compute_dtype=compute_dtype, device=device)

    return Compression(f"{bits}-bit integers (HQQ)", {}, compress)


def _eetq(
    config: QuantizationConfig, device: torch.device, compute_dtype: torch.dtype, shards_weights: bool
) -> Compression:
    if device.type != "cuda":
        raise ModelError(
            f"quantization_method: eetq computes on NVIDIA GPUs only, and this run is on {device.type}. "
            "Use quantization_method: bnb."
        )
    require("kernels", "eetq", "fetch EETQ's kernels")
    return Compression("8-bit integers (EETQ)", {"quantization_config": EetqConfig("int8")})


class _OnlyFirst(logging.Filter):
    """Lets each message through once; bitsandbytes repeats some for every layer of every call."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record says something new."""
        message = str(record.msg)
        is_new = message not in self._seen
        self._seen.add(message)
        return is_new


def _let_bitsandbytes_say_once() -> None:
    theirs = logging.getLogger("bitsandbytes.autograd._functions")
    if not any(isinstance(each, _OnlyFirst) for each in theirs.filters):
        theirs.addFilter(_OnlyFirst())
