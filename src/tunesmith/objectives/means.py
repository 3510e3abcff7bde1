"""Means of many batches and processes: totals and counts are added up apart and divided once."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tunesmith.objectives.base import Mean, Objective


class RunningMeans:
    """Adds up the means that an objective gives batch by batch; sums stay on their device until they are asked for."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._sums: Tensor | None = None

    def add(self, means: Mapping[str, Mean]) -> None:
        """Add the parts of a batch: the same names every time."""
        if not means:
            return
        parts = [part.detach().float() for mean in means.values() for part in (mean.total, mean.count)]
        table = torch.stack(parts).reshape(-1, 2)
        self._names = tuple(means)
        self._sums = table if self._sums is None else self._sums.to(table.device) + table

    def close(self, reduce_sum: Callable[[Tensor], Tensor], device: torch.device) -> dict[str, float]:
        """Return the means over all processes and start anew; what counted nothing is left out.

        Args:
            reduce_sum: Adds a tensor up over all processes; the identity for one process.
            device: Where the sum over processes is made.
        """
        if self._sums is None:
            return {}
        totals, self._sums = self._sums, None
        rows = reduce_sum(totals.to(device)).tolist()
        return {name: total / count for name, (total, count) in zip(self._names, rows, strict=True) if count}

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs to go on adding."""
        return {"names": list(self._names), "sums": [] if self._sums is None else self._sums.tolist()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        self._names = tuple(state["names"])
        self._sums = torch.tensor(state["sums"]).reshape(-1, 2) if state["sums"] else None


def mean_tensors(
    means: Mapping[str, Mean], reduce_sum: Callable[[Tensor], Tensor], device: torch.device
) -> dict[str, Tensor]:
    """Return each mean over all processes as a tensor on a device; 0 where nothing was counted."""
    table = torch.stack([torch.stack([mean.total.float(), mean.count.float()]) for mean in means.values()])
    totals, counts = reduce_sum(table.to(device)).unbind(dim=1)
    return dict(zip(means, totals / counts.clamp(min=1.0), strict=True))


def complete_step(objective: Objective, model: nn.Module, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch with what its loss needs to know of its step, of which it is all.

    Args:
        objective: Of the batch.
        model: As for `Objective.compute`.
        batch: On the model's device.
    """
    with torch.no_grad():
        measured = objective.measure(model, [batch])
    if not measured.means:
        return dict(batch)
    means = mean_tensors(measured.means, lambda values: values, batch["input_ids"].device)
    return {**batch, **(measured.by_batch[0] if measured.by_batch else {}), "step_means": means}
