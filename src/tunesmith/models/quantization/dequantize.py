"""Compressed weights made exact again, and the proof that they are the same model."""

import torch
from transformers import PreTrainedModel

from tunesmith.errors import ModelError
from tunesmith.models.probe import probe_logits, relative_difference

_TOLERANCE = 5e-2
"""Largest difference of logits, as a share of the largest. Compressed products round a little differently, by about
1e-3; weights that were read in a wrong layout give a difference of the size of the logits."""


def dequantize_checked(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """Return the model with its weights as ordinary numbers.

    Args:
        model: Loaded with compressed weights; used up.
        dtype: Of the weights that come out.

    Raises:
        ModelError: The logits are not what they were, so the weights were not read as they were meant.
    """
    expected = probe_logits(model)
    exact: PreTrainedModel = model.dequantize(dtype=dtype)
    difference = relative_difference(probe_logits(exact), expected)
    if not difference <= _TOLERANCE:
        raise ModelError(
            f"model_name_or_path: reading the quantised weights back changes the model's logits by {difference:.2g} of "
            f"their range, and {_TOLERANCE:g} is allowed. Name the 16-bit model that it was made from, and update "
            "the library that quantised it."
        )
    return exact
