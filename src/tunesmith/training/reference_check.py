"""Before the first step the policy is its own reference: every log-ratio is 0, and DPO's loss is the logarithm of 2."""

import torch
from torch import Tensor

from tunesmith.errors import TrainingError
from tunesmith.objectives.feedback import FeedbackObjective
from tunesmith.objectives.preference import PreferenceObjective
from tunesmith.training.assembly import RunParts
from tunesmith.training.trainer import ObjectiveTrainer

_TOLERANCE = {torch.float32: 1e-4}
_HALF_TOLERANCE = 3e-2
"""Difference per token that rounding explains: in half precision a kernel's choice of blocks already shows."""


def check_reference(parts: RunParts, trainer: ObjectiveTrainer) -> None:
    """Make sure that policy and reference agree on the first rows, where they are said to begin as the same.

    Raises:
        TrainingError: They do not, so that every loss of the run would be measured from the wrong place.
    """
    objective, rows = parts.objective, parts.data.train
    if not isinstance(objective, PreferenceObjective | FeedbackObjective) or rows is None:
        return
    reference = objective.reference
    if reference is None or not reference.equals_policy_at_start:
        return
    number = min(len(rows), parts.config.training.batch_size)
    batch = trainer.prepare_rows([rows[index] for index in range(number)])
    with torch.no_grad(), trainer.accelerator.autocast():
        ratios = objective.log_ratios(trainer.model, batch)
    lengths = torch.bincount(batch["completion_sequences"], minlength=len(ratios)).clamp(min=1)
    _check_ratios(ratios / lengths, parts, reference.describe())


def _check_ratios(per_token: Tensor, parts: RunParts, described: str) -> None:
    worst = float(per_token.abs().max())
    precision = parts.loaded.precision
    tolerance = _TOLERANCE.get(precision.autocast_dtype or precision.frozen_dtype, _HALF_TOLERANCE)
    if not worst <= tolerance:  # NaN is not
        raise TrainingError(
            f"Before the first step policy and reference should be the same, and their log-probabilities differ by "
            f"{worst:.3g} per token (allowed is {tolerance:g}). The reference is {described}. An adapter that is not "
            "fresh, a reference computed from other weights, or a callback that changes the model can be the reason; "
            "set ref_model if another model is meant."
        )
