"""Number types of a run: what frozen weights, trained weights and the computation use."""

import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import nn

from tunesmith.config import RunConfig
from tunesmith.errors import ModelError

_CPU_INFO = Path("/proc/cpuinfo")
_NORM = re.compile(r"norm|^ln_")
_NATIVE_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # the last one on ARM


@dataclass(frozen=True, slots=True)
class Precision:
    """Number types of one run."""

    frozen_dtype: torch.dtype
    """Of weights that are not trained."""

    trained_dtype: torch.dtype
    """Of weights that are trained; fp32 unless asked otherwise, because small steps round away in bf16."""

    autocast_dtype: torch.dtype | None
    """What matrix products are computed in; `None` leaves them in the type of their weights."""

    reason: str
    """Why, for the plan."""

    @property
    def compute_dtype(self) -> torch.dtype:
        """What activations are mostly made of."""
        return self.autocast_dtype or self.frozen_dtype

    def autocast(self, device: torch.device | str) -> AbstractContextManager[object]:
        """Return the context that forwards run in on this device."""
        if self.autocast_dtype is None:
            return nullcontext()
        return torch.autocast(torch.device(device).type, dtype=self.autocast_dtype)


def resolve_precision(config: RunConfig, device: torch.device | str) -> Precision:
    """Choose the number types from `bf16`, `fp16`, `pure_bf16` and what the device computes well.

    Raises:
        ModelError: fp16 was asked for where it cannot be trained.
    """
    device = torch.device(device)
    training = config.training
    trains_all = config.adapter.finetuning_type == "full"
    if training.pure_bf16:
        reason = "pure_bf16: trained weights are rounded to bf16 too" + _warn_if_slow(device)
        return Precision(torch.bfloat16, torch.bfloat16, None, reason)
    if training.bf16:
        frozen = torch.float32 if trains_all else torch.bfloat16
        return Precision(frozen, torch.float32, torch.bfloat16, "bf16 was asked for" + _warn_if_slow(device))
    if training.fp16:
        if device.type == "cpu":
            raise ModelError("fp16: true needs a GPU, and this run is on cpu. Remove fp16; bf16: auto picks what fits.")
        frozen = torch.float32 if trains_all else torch.float16
        return Precision(frozen, torch.float32, torch.float16, "fp16 was asked for")
    if training.bf16 is False:
        return Precision(torch.float32, torch.float32, None, "bf16: false")
    name = find_native_bf16(device)
    if name is None:
        reason = f"auto: this {device.type} does not compute bf16 natively"
        return Precision(torch.float32, torch.float32, None, reason)
    frozen = torch.float32 if trains_all else torch.bfloat16
    return Precision(frozen, torch.float32, torch.bfloat16, f"auto: {name} computes bf16 natively")


def resolve_inference_dtype(infer_dtype: str, stored: torch.dtype | None, device: torch.device | str) -> torch.dtype:
    """Choose the type of weights that are only run.

    Args:
        infer_dtype: The setting: `auto`, `float16`, `bfloat16` or `float32`.
        stored: Type that the weights were saved in, if the configuration says.
        device: Where they will run.
    """
    if infer_dtype != "auto":
        dtype: torch.dtype = getattr(torch, infer_dtype)
        return dtype
    device = torch.device(device)
    if stored == torch.bfloat16 and find_native_bf16(device) is not None:
        return torch.bfloat16
    if stored in {torch.float16, torch.bfloat16} and device.type != "cpu":
        return torch.float16
    return torch.float32


def upcast_norms(model: nn.Module) -> int:
    """Bring the frozen weights of norms to float32, in place; return how many there were in another type."""
    num_changed = 0
    for name, parameter in model.named_parameters():
        is_norm = parameter.dim() == 1 and any(_NORM.search(part) for part in name.split("."))
        if is_norm and parameter.is_floating_point() and parameter.dtype != torch.float32:
            parameter.data = parameter.data.float()
            num_changed += 1
    return num_changed


def find_native_bf16(device: torch.device | str) -> str | None:
    """Return the name of what computes bf16 natively on a device, or `None`.

    PyTorch calculates in bf16 everywhere; without hardware for it that is several times slower than fp32.
    """
    device = torch.device(device)
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return f"compute capability {major}.{minor}" if major >= 8 else None
    if device.type == "cpu":
        found = sorted(_cpu_flags(_CPU_INFO) & _NATIVE_BF16_FLAGS)
        return found[0] if found else None
    return None


def _warn_if_slow(device: torch.device) -> str:
    """Say what bf16 costs without hardware for it: 25 times the time on an AVX2 processor, measured with LoRA."""
    return "" if find_native_bf16(device) else f"; this {device.type} has no hardware for bf16 and will be much slower"


@lru_cache(maxsize=4)
def _cpu_flags(file: Path) -> frozenset[str]:
    if not file.is_file():
        return frozenset()
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in {"flags", "Features"}:
            return frozenset(value.split())
    return frozenset()
