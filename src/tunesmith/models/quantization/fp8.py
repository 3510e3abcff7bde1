"""Training whose matrix products are computed in 8-bit floats, on GPUs that have them."""

from typing import Any

import torch
from torch import nn

from tunesmith.errors import ModelError
from tunesmith.models.quantization.qat import find_rounded
from tunesmith.runtime.optional import require

FLOAT8_CAPABILITY = (8, 9)
"""Compute capability from which NVIDIA GPUs have 8-bit floats."""

_MULTIPLE = 16
"""Both sides of a matrix have to be a multiple of this for the GPU's products."""


def use_float8_products(model: nn.Module, device: torch.device) -> str:
    """Have the linear layers of a model compute their products in 8-bit floats, in place; weights stay what they are.

    Args:
        model: With its trained part chosen, on its device.
        device: Where it is.

    Returns:
        What was done, for the plan.

    Raises:
        ModelError: The device has no such products, or no layer has a size that they take.
        MissingDependencyError: torchao is not installed.
    """
    if device.type != "cuda":
        raise ModelError(
            f"fp8: true needs an NVIDIA GPU with 8-bit floats (Ada, Hopper or newer), and this run is on {device.type}."
            " Remove fp8: bf16 is chosen where the machine has it."
        )
    capability = torch.cuda.get_device_capability(device)
    if capability < FLOAT8_CAPABILITY:
        raise ModelError(
            f"fp8: true needs a GPU of compute capability 8.9 or newer (Ada, Hopper), and this one has "
            f"{capability[0]}.{capability[1]}. Remove fp8."
        )
    torchao: Any = require("torchao.float8", "torchao", "compute in 8-bit floats")
    chosen = {
        name
        for name, module in find_rounded(model).items()
        if module.in_features % _MULTIPLE == 0 and module.out_features % _MULTIPLE == 0
    }
    if not chosen:
        raise ModelError(f"fp8: no linear layer has sides that are multiples of {_MULTIPLE}. Remove fp8.")
    torchao.convert_to_float8_training(model, module_filter_fn=lambda module, name: name in chosen)
    return f"fp8: {len(chosen)} linear layers compute in 8-bit floats (torchao, scaled by tensor)"
