"""Weights compressed by HQQ, layer by layer, in a model that is loaded already.

transformers 5.24 does not compress with HQQ while it loads, and refuses CPUs.
"""

from typing import Any

import torch
from transformers import PreTrainedModel

from tunesmith.models.adapters.modules import list_linears
from tunesmith.runtime.optional import require

_GROUP_SIZES = (64, 32, 16, 8)
"""Weights that share a scale, best first; the group has to divide the weights of a layer."""


def compress_linears(
    model: PreTrainedModel, *, bits: int, compute_dtype: torch.dtype, device: torch.device | str
) -> None:
    """Replace the linear layers of a model, the output head apart, by ones that HQQ compressed. Changed in place.

    Args:
        model: With exact weights.
        bits: 1, 2, 3, 4, 5, 6 or 8.
        compute_dtype: Type that products are computed in.
        device: Where the compressed weights go.
    """
    hqq: Any = require("hqq.core.quantize", "hqq", "keep weights in HQQ's formats")
    for linear in list_linears(model):
        parent, leaf = model.get_submodule(linear.name.rpartition(".")[0]), linear.leaf
        exact = parent.get_submodule(leaf)
        group_size = next(size for size in _GROUP_SIZES if exact.in_features % size == 0 or size == _GROUP_SIZES[-1])
        settings = hqq.BaseQuantizeConfig(nbits=bits, group_size=group_size, axis=1)
        compressed = hqq.HQQLinear(exact, settings, compute_dtype=compute_dtype, device=str(device))
        setattr(parent, leaf, compressed)
