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


def token_entropy(logits: Tensor, log_normaliser: Tensor) -> Tensor:
    """Return the entropy of each distribution in nats, in float32 (float64 stays float64).

    Args:
        logits: Unnormalised scores, minus infinity where a token is impossible. Shape [items, vocabulary].
        log_normaliser: Logarithm of the sum of their exponentials. Shape [items].
    """
    if logits.dtype != torch.float64:
        logits = logits.float()
    # Minus the mean of log p, which is the normaliser minus the mean logit: no logarithm of every probability, and few
    # passes over the vocabulary, since this runs in every step.
    # An impossible token has 0 times infinity there, and no part in the sum.
    return log_normaliser - torch.softmax(logits, dim=-1).mul_(logits).nansum(dim=-1)
