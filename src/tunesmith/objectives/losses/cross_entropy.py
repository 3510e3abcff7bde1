"""Cross entropy of the next token, with optional label smoothing and z-loss.

Label smoothing: Szegedy et al. 2016, "Rethinking the Inception Architecture", section 7; the smoothing mass is spread
evenly over the whole vocabulary. z-loss: Chowdhery et al. 2022, "PaLM", section 5; it keeps the normaliser near one.
"""

import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody reads at once
from torch import Tensor


def token_cross_entropy(logits: Tensor, labels: Tensor, *, label_smoothing: float = 0.0, z_loss: float = 0.0) -> Tensor:
    """Return one loss per token, not reduced, in float32 (float64 stays float64).

    Args:
        logits: Unnormalised scores. Shape [items, vocabulary].
        labels: The token that follows; every entry is a real token. Shape [items].
        label_smoothing: Share of the target probability spread evenly over the vocabulary, in [0, 1).
        z_loss: Weight of the squared logarithm of the normaliser, added to each token's loss.
    """
    if logits.dtype != torch.float64:
        logits = logits.float()
    if z_loss == 0.0:
        return F.cross_entropy(logits, labels, reduction="none", label_smoothing=label_smoothing)
    log_normaliser = torch.logsumexp(logits, dim=-1)
    target = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    if label_smoothing:
        target = (1.0 - label_smoothing) * target + label_smoothing * logits.mean(dim=-1)
    return log_normaliser - target + z_loss * log_normaliser.square()
