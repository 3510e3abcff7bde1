"""What differs between model families after the output projection: scaled and soft-capped logits.

Only facts that cannot be read off the modules themselves stand here. A family that is missing is taken as plain and is
then verified numerically by `heads.resolve_head`, so a gap in this table costs speed, never correctness.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LogitTransform:
    """What a family does with the output of its head: `softcap * tanh(multiplier * logits / softcap)`."""

    multiplier: float = 1.0
    softcap: float | None = None

    def __call__(self, logits: Tensor) -> Tensor:
        """Return the transformed logits, any shape; the same tensor where nothing is to do."""
        if self.multiplier != 1.0:
            logits = logits * self.multiplier
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        return logits


def _logit_scale(config: Any) -> float:
    return float(config.logit_scale)


def _divided_by_logits_scaling(config: Any) -> float:
    return 1.0 / float(config.logits_scaling)


def _times_logits_scaling(config: Any) -> float:
    return float(config.logits_scaling)


def _lm_head_multiplier(config: Any) -> float:
    return float(config.lm_head_multiplier)


# The same field name means "times" in one family and "divided by" in another, so the model type decides.
_MULTIPLIERS: Mapping[str, Callable[[Any], float]] = {
    "cohere": _logit_scale,
    "cohere2": _logit_scale,
    "cohere2_moe": _logit_scale,
    "granite": _divided_by_logits_scaling,
    "granite_swa": _divided_by_logits_scaling,
    "granitemoe": _divided_by_logits_scaling,
    "granitemoe_swa": _divided_by_logits_scaling,
    "granitemoeshared": _divided_by_logits_scaling,
    "granitemoehybrid": _divided_by_logits_scaling,
    "hyperclovax": _times_logits_scaling,
    "falcon_h1": _lm_head_multiplier,
}

_SOFT_CAPPED = frozenset({"gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "vaultgemma"})


def resolve_logit_transform(config: Any) -> LogitTransform:
    """Return what the family of a text model does after its head.

    Args:
        config: The text part of a transformers configuration (`config.get_text_config()`).
    """
    multiplier = _MULTIPLIERS.get(config.model_type)
    softcap = config.final_logit_softcapping if config.model_type in _SOFT_CAPPED else None
    return LogitTransform(
        multiplier=multiplier(config) if multiplier else 1.0,
        softcap=float(softcap) if softcap else None,
    )
