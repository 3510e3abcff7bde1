"""What two forms of one model are compared by: the logits of a few tokens."""

from contextlib import nullcontext

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tunesmith.models.heads import evaluation_mode
from tunesmith.models.precision import Precision

_PROBE_TOKENS = 33


def probe_logits(model: PreTrainedModel, precision: Precision | None = None) -> Tensor:
    """Return what a model makes of a few random tokens, always the same, in float32 on the CPU.

    Shape [tokens, vocabulary].

    Args:
        model: Its mode is evaluation meanwhile, and then what it was.
        precision: Of the run; needed where weights of one model differ in type.
    """
    rng = torch.Generator().manual_seed(0)
    ids = torch.randint(0, model.config.get_text_config().vocab_size, (1, _PROBE_TOKENS), generator=rng)
    autocast = nullcontext() if precision is None else precision.autocast(model.device)
    with evaluation_mode(model), torch.inference_mode(), autocast:
        logits: Tensor = model(input_ids=ids.to(model.device), use_cache=False).logits[0]
    return logits.float().cpu()


def relative_difference(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference as a share of the largest expected magnitude."""
    return float((actual - expected).abs().max() / expected.abs().max().clamp_min(1e-6))
