"""Settings of weights kept in fewer bits. Known, and refused until a run can use them."""

from dataclasses import dataclass
from typing import Literal

from tunesmith.config.constraints import PositiveInt


@dataclass(frozen=True, kw_only=True)
class QuantizationConfig:
    """How frozen weights are compressed while an adapter is trained."""

    quantization_bit: PositiveInt | None = None
    """Bits per frozen weight. Known but not supported yet: leave it out."""

    quantization_method: Literal["bnb", "hqq", "eetq"] = "bnb"
    """Library that compresses the weights. Has a meaning only together with `quantization_bit`."""

    quantization_type: Literal["nf4", "fp4"] = "nf4"
    """Number format of 4-bit weights. Has a meaning only together with `quantization_bit`."""

    double_quantization: bool = True
    """Compress the scales too. Has a meaning only together with `quantization_bit`."""
