"""Checkpoints whose weights are stored compressed, and what each kind can do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

from transformers import CompressedTensorsConfig, FineGrainedFP8Config, Mxfp4Config, PreTrainedConfig
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

from tunesmith.config.peft_methods import PEFT_METHODS
from tunesmith.errors import MissingDependencyError, ModelError

Reading = Literal["compressed", "exact"]


@dataclass(frozen=True, slots=True)
class StoredKind:
    """One way of storing weights in fewer bits."""

    title: str
    reading: Reading
    """`exact`: the weights become ordinary 16-bit numbers while they are loaded, and everything is possible then."""

    modules: Mapping[str, str] = field(default_factory=dict)
    """Modules that reading needs, with the name of their package."""

    exact_loading: Callable[[], Any] | None = None
    """Builds the loader's setting that makes the weights exact."""

    can_be_dequantized: bool = False
    """Whether the weights can be made exact after loading, for a merge."""


_GPTQMODEL = {"gptqmodel": "gptqmodel", "optimum": "optimum"}
KINDS: Mapping[str, StoredKind] = {
    "gptq": StoredKind("GPTQ", "compressed", _GPTQMODEL),
    "awq": StoredKind("AWQ", "compressed", {"gptqmodel": "gptqmodel"}),
    "bitsandbytes": StoredKind("bitsandbytes", "compressed", {"bitsandbytes": "bitsandbytes"}, can_be_dequantized=True),
    "torchao": StoredKind("torchao", "compressed", {"torchao": "torchao"}),
    "aqlm": StoredKind("AQLM", "compressed", {"aqlm": "aqlm"}),
    "eetq": StoredKind("EETQ", "compressed", {"kernels": "kernels"}),
    "compressed-tensors": StoredKind(
        "compressed-tensors",
        "exact",
        {"compressed_tensors": "compressed-tensors"},
        lambda: CompressedTensorsConfig(dequantize=True),
    ),
    "mxfp4": StoredKind("MXFP4", "exact", {}, lambda: Mxfp4Config(dequantize=True)),
    "fp8": StoredKind("FP8", "exact", {}, lambda: FineGrainedFP8Config(dequantize=True)),
}
"""By `quant_method` of the checkpoint. Others are left to transformers, which knows whether they can be trained."""


@dataclass(frozen=True, slots=True)
class StoredQuantization:
    """What a checkpoint says about its own weights."""

    kind: StoredKind
    bits: int | None
    method: str
    """Its `quant_method`."""

    @property
    def title(self) -> str:
        """In words, such as `4-bit GPTQ`."""
        return f"{self.bits}-bit {self.kind.title}" if self.bits else self.kind.title


def find_stored_quantization(model_config: PreTrainedConfig) -> StoredQuantization | None:
    """Return how the weights of a checkpoint are compressed, `None` where they are not."""
    settings = model_config.to_dict().get("quantization_config")
    if not settings:
        return None
    method = settings.get("quant_method")
    if method is None and (settings.get("load_in_4bit") or settings.get("load_in_8bit")):
        method = "bitsandbytes"  # which did not say so at first
    method = str(method)
    kind = KINDS.get(method, StoredKind(method, "compressed"))
    bits = settings.get("bits")
    if method == "bitsandbytes":
        bits = 8 if settings.get("load_in_8bit") else 4
    return StoredQuantization(kind, bits if isinstance(bits, int) else None, method)


def check_readable(stored: StoredQuantization) -> None:
    """Refuse a checkpoint that cannot be read here; transformers would take unknown weights for exact ones.

    Raises:
        ModelError: The installed transformers does not know this way of storing weights.
        MissingDependencyError: Some module is not installed.
    """
    if stored.method not in {*KINDS, *AUTO_QUANTIZATION_CONFIG_MAPPING}:
        raise ModelError(
            f"model_name_or_path: its config.json says that the weights are stored as quant_method: {stored.method}, "
            "which the installed transformers cannot read. Name the 16-bit model, or update transformers."
        )
    missing = [package for module, package in stored.kind.modules.items() if find_spec(module) is None]
    if missing:
        raise MissingDependencyError(
            f"model_name_or_path: the weights are stored as {stored.title}, which needs the package "
            f"{' and '.join(missing)}. Install it with: pip install {' '.join(missing)}"
        )


def check_trainable(stored: StoredQuantization, finetuning_type: str) -> None:
    """Refuse to train compressed weights themselves, or beside them what computes with exact ones.

    Raises:
        ModelError: They stay compressed, and something else than a fitting adapter would be trained.
    """
    method = PEFT_METHODS.get(finetuning_type)
    if stored.method == "bitsandbytes" and method is not None and method.needs_exact_weights:
        raise ModelError(
            f"finetuning_type: {finetuning_type} computes with the frozen weights themselves, and these are stored as "
            f"{stored.title}. Set finetuning_type: lora, or name the 16-bit model."
        )
    if stored.kind.reading == "compressed" and finetuning_type in ("full", "freeze"):
        raise ModelError(
            f"finetuning_type: {finetuning_type} would train weights that are stored as {stored.title}, whose values "
            "are too far apart for a step of training. Set finetuning_type: lora, or name the 16-bit model."
        )
