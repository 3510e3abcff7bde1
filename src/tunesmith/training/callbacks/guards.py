"""Stops a run before an optimiser step would spoil the weights, and says which rows did it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tunesmith.errors import TrainingError

_SHOWN_ROWS = 16


@dataclass(slots=True)
class StepRecord:
    """What this process did in the optimiser step under way."""

    losses: list[Tensor] = field(default_factory=list)
    """Summed loss of each micro-batch, on its device. Shape [] each."""

    items: list[int] = field(default_factory=list)
    """Items of each micro-batch."""

    row_ids: list[list[int]] = field(default_factory=list)
    """Source rows of each micro-batch."""

    gradient_norm: Tensor | float | None = None
    """Norm of all gradients of the step, before clipping."""

    def restart(self, items: Sequence[int], row_ids: Sequence[list[int]]) -> None:
        """Begin a step whose micro-batches are known."""
        self.losses, self.items, self.row_ids = [], list(items), list(row_ids)
        self.gradient_norm = None


class NumberGuard(TrainerCallback):
    """Raises before the optimiser step if a loss or a gradient is not a usable number."""

    def __init__(self, record: StepRecord, describe_row: Callable[[int], str], *, scales_loss: bool = False) -> None:
        self._record = record
        self._describe_row = describe_row
        self._scales_loss = scales_loss
        """fp16 with a loss scaler: a gradient that overflows is skipped and the scale lowered, which is normal."""

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Look at the losses and the gradient norm of the step that is about to be taken."""
        record = self._record
        if not record.losses:
            return
        # One transfer for all numbers: each .item() would wait for the device.
        numbers = [loss.detach().float().reshape(()) for loss in record.losses]
        norm = torch.as_tensor(0.0 if record.gradient_norm is None else record.gradient_norm)
        *losses, gradient_norm = torch.stack([*numbers, norm.float().to(numbers[0].device).reshape(())]).tolist()
        step = state.global_step + 1
        for number, loss in enumerate(losses):
            if not _is_finite(loss):
                raise self._error(f"The loss of step {step} is {loss}", record.row_ids[number : number + 1])
        # A step may hold no item at all (one-token rows); a loss of nothing is rightly zero.
        if sum(record.items) > 0 and not any(losses):
            raise self._error(
                f"The loss of step {step} is exactly 0 over {sum(record.items)} tokens, so there is nothing to learn "
                "from, or the numbers are broken (overflow in half precision, weights that are all zero)",
                record.row_ids,
            )
        if not _is_finite(gradient_norm) and not self._scales_loss:
            raise self._error(
                f"The gradient of step {step} is {gradient_norm} although its loss is finite", record.row_ids
            )

    def _error(self, what: str, row_ids: Sequence[Sequence[int]]) -> TrainingError:
        rows = [row for batch in row_ids for row in batch]
        shown = "\n".join(f"  {self._describe_row(row)}" for row in rows[:_SHOWN_ROWS])
        more = f"\n  and {len(rows) - _SHOWN_ROWS} more" if len(rows) > _SHOWN_ROWS else ""
        return TrainingError(
            f"{what}. The run was stopped before the optimizer step, so the weights are as they were.\n"
            f"Rows of the batch:\n{shown}{more}\n"
            "Look at these rows; lower learning_rate, raise warmup_steps, or use bf16 instead of fp16."
        )


def _is_finite(value: float) -> bool:
    return value - value == 0.0
