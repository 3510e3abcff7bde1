"""Compressed weights made exact again, and the proof that they are the same model."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tunesmith.errors import ModelError
from tunesmith.models.heads import evaluation_mode

_PROBE_TOKENS = 16
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
    expected = _probe_logits(model)
    exact: PreTrainedModel = model.dequantize(dtype=dtype)
    size = expected.abs().max().clamp_min(1e-6)
    difference = float((_probe_logits(exact) - expected).abs().max() / size)
    if not difference <= _TOLERANCE:
        raise ModelError(
            f"model_name_or_path: reading the quantised weights back changes the model's logits by {difference:.2g} of "
            f"their range, and {_TOLERANCE:g} is allowed. Name the 16-bit model that it was made from, and update "
            "the library that quantised it."
        )
    return exact


def _probe_logits(model: PreTrainedModel) -> Tensor:
    """Return logits of a few tokens in float32, on the CPU. Shape [tokens, vocabulary]."""
    ids = torch.arange(1, _PROBE_TOKENS + 1, device=model.device)
    ids = ids.remainder(model.config.get_text_config().vocab_size)[None]
    with evaluation_mode(model), torch.inference_mode():
        logits: Tensor = model(input_ids=ids, use_cache=False).logits[0]
    return logits.float().cpu()
