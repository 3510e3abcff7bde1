"""Which attention a run uses; `isolation` proves that it keeps packed samples apart."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from packaging.version import Version
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

from tunesmith.errors import ModelError
from tunesmith.models.flex import FLEX, find_flex_obstacle
from tunesmith.models.precision import Precision
from tunesmith.models.segments import SEGMENTS

FlashAttn = Literal["auto", "disabled", "eager", "sdpa", "segments", "flex", "fa2", "fa3"]

_IMPLEMENTATIONS = {
    "disabled": "eager",
    "eager": "eager",
    "sdpa": "sdpa",
    "segments": SEGMENTS,
    "flex": FLEX,
    "fa2": "flash_attention_2",
    "fa3": "flash_attention_3",
}

# Layers that carry a state from token to token and do not stop at the border of a sample.
_RECURRENT_LAYERS = frozenset({"linear_attention", "mamba", "recurrent", "conv", "hybrid", "hybrid_mamba"})
_RECURRENT_FAMILIES = frozenset({"mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm", "recurrent_gemma"})


@dataclass(frozen=True, slots=True)
class AttentionChoice:
    """The attention implementation of a run."""

    implementation: str
    """Name for transformers' `attn_implementation`."""

    supports_flat: bool
    """Whether rows of a micro-batch may follow each other in one row without cost for pairs across samples."""

    reason: str
    """Why this one, for the plan."""


class _ModelConfig(Protocol):
    model_type: str

    def get_text_config(self) -> Any:
        """Return the part that describes the language model."""
        ...


def resolve_attention(
    flash_attn: FlashAttn,
    device: torch.device | str,
    model_config: _ModelConfig | None = None,
    precision: Precision | None = None,
    *,
    shares_prompts: bool = False,
) -> AttentionChoice:
    """Choose the attention implementation; what the user asks for is used or refused, never replaced.

    Args:
        flash_attn: The setting; `auto` takes flash attention where it is installed on a GPU, else one causal attention
            per sample (`segments`), which computes no pair across samples on any device. Where completions are to share
            a prompt it takes flex attention on a GPU that can compile it: flash attention knows of no branches.
        device: Where the model will run.
        model_config: The model's transformers configuration. With it, models whose layers carry a state across sample
            borders are never given flat rows.
        precision: Of the run; flash attention computes in half precision only.
        shares_prompts: Whether rows may hold prompts that several completions go on from, see
            `RunConfig.may_share_prompts`.

    Raises:
        ModelError: The asked-for backend is not installed or cannot run on this device.
    """
    device = torch.device(device)
    if flash_attn == "auto":
        choice = _choose_best(device, precision, model_config, shares_prompts=shares_prompts)
    else:
        _check_available(flash_attn, device, precision, model_config)
        # sdpa and eager isolate by position_ids too, but compute the whole square; flat rows would only cost there.
        supports_flat = flash_attn in {"segments", "flex", "fa2", "fa3"}
        choice = AttentionChoice(_IMPLEMENTATIONS[flash_attn], supports_flat, f"flash_attn: {flash_attn} was asked for")
    recurrence = find_recurrence(model_config) if model_config is not None else ""
    if recurrence and choice.supports_flat:
        return AttentionChoice(choice.implementation, False, f"{choice.reason}; rows stay apart: {recurrence}")
    return choice


def _choose_best(
    device: torch.device, precision: Precision | None, model_config: Any, *, shares_prompts: bool
) -> AttentionChoice:
    obstacle, note = f"no flash attention on this {device.type}", ""
    if device.type == "cuda":
        if shares_prompts:
            obstacle = find_flex_obstacle(device, model_config, precision)
            if not obstacle:
                return AttentionChoice(FLEX, True, "flex attention, in which completions share their prompt")
            note = f"; flex attention, in which completions share their prompt, {obstacle}"
        if is_flash_attn_3_available() and not _find_flash_obstacle("fa3", device, precision):
            return AttentionChoice(
                "flash_attention_3", True, f"flash-attn 3 is installed and this is a Hopper GPU{note}"
            )
        obstacle = _find_flash_obstacle("fa2", device, precision)
        if is_flash_attn_2_available() and not obstacle:
            return AttentionChoice("flash_attention_2", True, f"flash-attn 2 is installed{note}")
        obstacle = f"flash attention {obstacle}" if obstacle else "flash-attn is not installed"
    return AttentionChoice(SEGMENTS, True, f"one causal attention per sample; {obstacle}{note}")


def _find_flash_obstacle(flash_attn: str, device: torch.device, precision: Precision | None) -> str:
    """Return why flash attention cannot run on a GPU in this precision, or an empty string."""
    major, minor = torch.cuda.get_device_capability(device)
    is_fit = major == 9 if flash_attn == "fa3" else major >= 8
    if not is_fit:
        needed = "a Hopper GPU" if flash_attn == "fa3" else "an Ampere GPU or newer"
        return f"needs {needed}, and this one has compute capability {major}.{minor}"
    if precision is not None and precision.compute_dtype == torch.float32:
        return "computes in bf16 or fp16 only, and this run computes in float32"
    return ""


def _check_available(
    flash_attn: str, device: torch.device, precision: Precision | None, model_config: Any = None
) -> None:
    if flash_attn in {"fa2", "fa3"}:
        if device.type != "cuda":
            raise ModelError(
                f"flash_attn: {flash_attn} runs on NVIDIA GPUs only, and this run is on {device.type}. "
                "Set flash_attn: auto, which takes the best one for this device."
            )
        installed = is_flash_attn_2_available() if flash_attn == "fa2" else is_flash_attn_3_available()
        if not installed:
            package = "flash-attn" if flash_attn == "fa2" else "flash-attn-3"
            raise ModelError(
                f"flash_attn: {flash_attn} needs the package {package}, which is not installed. "
                f"Install {package} or set flash_attn: auto."
            )
        obstacle = _find_flash_obstacle(flash_attn, device, precision)
        if obstacle:
            raise ModelError(f"flash_attn: {flash_attn} {obstacle}. Set flash_attn: auto, which takes what fits.")
    if flash_attn == "flex":
        obstacle = find_flex_obstacle(device, model_config, precision)
        if obstacle:
            raise ModelError(f"flash_attn: flex attention {obstacle}. Set flash_attn: auto, which takes what fits.")


def find_recurrence(model_config: _ModelConfig) -> str:
    """Return what in a model carries state over sample borders, in words, or an empty string."""
    text = model_config.get_text_config()
    if text.model_type in _RECURRENT_FAMILIES:
        return f"{text.model_type} layers carry state across samples"
    layer_types = set(text.to_dict().get("layer_types") or ())
    found = sorted(layer_types & _RECURRENT_LAYERS)
    return f"{text.model_type} has {', '.join(found)} layers, which carry state across samples" if found else ""


def computes_exactly(dtype: torch.dtype, device: torch.device, precision: Precision | None) -> bool:
    """Return whether logits of this type come from products in float32.

    They may have been brought to it afterwards, and TF32 rounds the factors of float32 products.
    """
    if device.type == "cuda" and _uses_tf32():
        return False
    return dtype == torch.float32 and (precision is None or precision.compute_dtype == torch.float32)


def _uses_tf32() -> bool:
    if Version(torch.__version__) >= Version("2.9"):  # the older flag cannot be read once the newer one is set
        return str(torch.backends.cuda.matmul.fp32_precision) == "tf32"
    return bool(torch.backends.cuda.matmul.allow_tf32)
