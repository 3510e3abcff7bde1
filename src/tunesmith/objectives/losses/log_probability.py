"""What a distribution over the vocabulary says about one token, and about itself."""

import torch
from torch import Tensor

from tunesmith.objectives.losses.cross_entropy import token_cross_entropy


def token_log_probability(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the log-probability of each label, in float32 (float64 stays float64).

    Args:
        logits: Unnormalised scores. Shape [items, vocabulary].
        labels: The token that follows. Shape [items].
    """
    return -token_cross_entropy(logits, labels)


def token_entropy(logits: Tensor) -> Tensor:
    """Return the entropy of each distribution in nats, in float32 (float64 stays float64).

    Args:
        logits: Unnormalised scores. Shape [items, vocabulary].
    """
    if logits.dtype != torch.float64:
        logits = logits.float()
    # -p log p, which is 0 where a token is impossible. Few passes over the vocabulary: this runs in every step.
    return torch.special.entr(torch.softmax(logits, dim=-1)).sum(dim=-1)
