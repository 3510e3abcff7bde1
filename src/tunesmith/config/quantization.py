"""Settings of weights kept in fewer bits while an adapter is trained beside them."""

from dataclasses import dataclass
from typing import Literal

from tunesmith.config.constraints import PositiveInt

QuantizationMethod = Literal["bnb", "hqq", "eetq", "torchao"]

QUANTIZATION_BITS = {"bnb": (4, 8), "hqq": (1, 2, 3, 4, 5, 6, 8), "eetq": (8,), "torchao": (4, 8)}
"""Bits per weight that each method can store."""


@dataclass(frozen=True, kw_only=True)
class QuantizationConfig:
    """How frozen weights are compressed while an adapter is trained."""

    quantization_bit: PositiveInt | None = None
    """Bits per frozen weight while an adapter is trained beside it (QLoRA), or while a model is run.

    4 takes a quarter of the memory of 16-bit weights and costs some quality, 8 takes half and costs next to none. Needs
    `finetuning_type: lora`: the compressed weights themselves cannot be trained. `export` merges the adapter into the
    weights as they were before. Models that are stored compressed need no setting."""

    quantization_method: QuantizationMethod = "bnb"
    """Library that compresses the weights. Has a meaning only together with `quantization_bit`.

    `bnb` (bitsandbytes, 4 or 8 bits) runs everywhere and is the best tested. `torchao` stores 4 or 8 bits too, `hqq`
    1 to 6 or 8, and `eetq` 8 on NVIDIA GPUs."""

    quantization_type: Literal["nf4", "fp4", "fp8"] = "nf4"
    """Number format of the compressed weights where the method has several.

    `nf4` and `fp4` are formats of bitsandbytes' 4 bits; nf4 loses less. `fp8` makes torchao's 8 bits a float. Has a
    meaning only together with `quantization_bit`."""

    double_quantization: bool = True
    """Compress the scales of bitsandbytes' 4-bit weights too, which saves 0.4 bits per weight.

    Has a meaning only together with `quantization_bit`."""
