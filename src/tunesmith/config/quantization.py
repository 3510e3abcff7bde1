"""Settings of weights in fewer bits: compressed beside an adapter, or learnt so that they can be compressed later."""

from dataclasses import dataclass
from typing import Literal

from tunesmith.config.constraints import NonNegativeInt, PositiveInt

QuantizationMethod = Literal["bnb", "hqq", "eetq", "torchao"]
QatScheme = Literal["int8-dynamic-int4-weight", "int4-weight", "int8-weight"]

QUANTIZATION_BITS = {"bnb": (4, 8), "hqq": (1, 2, 3, 4, 5, 6, 8), "eetq": (8,), "torchao": (4, 8)}
"""Bits per weight that each method can store."""


@dataclass(frozen=True, kw_only=True)
class QuantizationConfig:
    """How weights are compressed: frozen ones during the training, trained ones after it."""

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

    qat: QatScheme | None = None
    """Learn weights that bear being compressed afterwards (quantisation-aware training), in this scheme of torchao.

    Forward passes round the weights (and for `int8-dynamic-int4-weight` the activations) as the compressed model will;
    gradients go to the exact ones. `tunesmith export --quantize` then writes the compressed model, which loses far less
    than one that was not trained for it. Costs some speed. Works with full tuning and LoRA; needs the extra
    `torchao`."""

    qat_start_step: NonNegativeInt = 0
    """Optimizer step from which `qat` rounds.

    A few hundred steps of ordinary training first can help full tuning find its way."""

    qat_group_size: PositiveInt = 32
    """Weights that share a scale in the 4-bit schemes of `qat`; has to divide the inputs of every linear layer.

    Smaller groups lose less and take more memory for scales."""
