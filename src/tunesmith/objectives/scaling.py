"""Gradients times a factor that half precision could not hold."""

import torch
from torch import Tensor

_ROWS_AT_ONCE = 4096


def scale_in_place(values: Tensor, factors: Tensor) -> None:
    """Multiply by float32 factors, without rounding them to the type of the values.

    On a GPU, PyTorch rounds a scalar tensor to the type of the other factor first: the 65,536 that a loss scaler begins
    with is infinite in fp16, and one over the number of items is off by up to 0.4% in bf16. A few rows at a time, so
    that no float32 copy of a whole head's gradient exists.

    Args:
        values: Shape [rows, ...]. Changed in place.
        factors: One for all, shape [], or one for each row, shape [rows].
    """
    ones = [1] * (values.dim() - 1)
    if factors.dim():
        factors = factors.reshape(-1, *ones)
    if values.dtype in {torch.float32, torch.float64}:
        values.mul_(factors)
        return
    each = factors.expand(len(values), *ones)
    for rows, own in zip(torch.split(values, _ROWS_AT_ONCE), torch.split(each, _ROWS_AT_ONCE), strict=True):
        rows.copy_(rows.float().mul_(own))
