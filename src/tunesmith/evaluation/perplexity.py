"""Loss, perplexity and accuracy over an evaluation set, exact to the token.

The mean is taken once, over all items of the set: a mean of batch means, which is what most trainers report, gives
short rows more weight than long ones and changes with the batch size. Only sums are kept, so memory does not grow
with the set.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

import torch
from torch import Tensor, nn

from tunesmith.models.heads import evaluation_mode
from tunesmith.objectives.base import LossSum, Objective
from tunesmith.objectives.means import RunningMeans, mean_tensors


@dataclass(frozen=True, slots=True)
class EvaluationLoss:
    """What a model scores on an evaluation set."""

    loss: float
    """Mean loss per item, in nats."""

    perplexity: float
    """exp(loss); infinite where that is too large for a float."""

    accuracy: float | None
    """Share of items for which the model's first choice is right; `None` where the objective does not count them."""

    items: int
    """Number of items over all processes."""

    means: Mapping[str, float] = field(default_factory=dict)
    """What the objective gives beside the loss, as means over the set."""


MeasureBatch = Callable[[int, Mapping[str, Any], Mapping[str, Any]], Iterable[LossSum]]
"""Number of a batch in the set, the batch as it was made, what is known of the set -> what its parts come to."""


def measure_loss(
    model: nn.Module,
    dataloader: Iterable[Mapping[str, Any]],
    objective: Objective,
    prepare_inputs: Callable[[Mapping[str, Any]], Mapping[str, Tensor]],
    measure_batch: MeasureBatch | None = None,
) -> EvaluationLoss:
    """Run a model over a set of batches and return its mean loss per item.

    With several processes each one passes its own share of the batches, and all get the result of the whole set. Every
    process must pass the same number of batches if the model communicates in its forward.

    Args:
        model: The model; put into evaluation mode here and back afterwards.
        dataloader: Batches of the evaluation set.
        objective: What is measured.
        prepare_inputs: Makes a batch ready for the objective: moved to the device, without bookkeeping keys.
        measure_batch: Runs the objective on a batch where that is not always done as a whole.
    """

    def measure_whole(number: int, batch: Mapping[str, Any], known: Mapping[str, Any]) -> Iterable[LossSum]:
        return [objective.compute(model, {**prepare_inputs(batch), **known})]

    measure_batch = measure_batch or measure_whole
    sums = torch.zeros(3, dtype=torch.float64)  # loss, items, right first choices
    counts_correct = True
    means = RunningMeans()
    with evaluation_mode(model), torch.no_grad():
        known, by_batch = _measure_set(model, dataloader, objective, prepare_inputs)
        batches = zip(dataloader, chain(by_batch, repeat({})), strict=False)
        for number, (batch, own) in enumerate(batches):
            for result in measure_batch(number, batch, {**known, **own}):
                means.add(result.means)
                correct = result.metrics.get("correct")
                counts_correct = counts_correct and correct is not None
                sums += _find_sums(result)
    total, items, correct_items = _sum_over_processes(sums, model).tolist()
    found = means.close(lambda values: _sum_over_processes(values, model), torch.device("cpu"))
    if items == 0:
        return EvaluationLoss(loss=math.nan, perplexity=math.nan, accuracy=None, items=0)
    loss = total / items
    return EvaluationLoss(
        loss=loss,
        perplexity=math.exp(loss) if loss < 700 else math.inf,
        accuracy=correct_items / items if counts_correct else None,
        items=int(items),
        means=found,
    )


def _find_sums(result: LossSum) -> Tensor:
    """Return loss, items and right first choices of a batch. Shape [3].

    One transfer, since each waits for the device. In double precision: float32 loses single tokens after some millions.
    """
    correct = result.metrics.get("correct", torch.zeros_like(result.items))
    parts = (result.total, result.items, correct)
    return torch.stack([part.detach().float() for part in parts]).cpu().double()


def _measure_set(
    model: nn.Module,
    dataloader: Iterable[Mapping[str, Any]],
    objective: Objective,
    prepare_inputs: Callable[[Mapping[str, Any]], Mapping[str, Tensor]],
) -> tuple[dict[str, Any], Sequence[Mapping[str, Any]]]:
    """Return what the loss of one item needs to know of the whole set, and what is known of each batch by then."""
    measured = objective.measure(model, map(prepare_inputs, dataloader))
    if not measured.means:
        return {}, ()
    device = next(model.parameters()).device
    means = mean_tensors(measured.means, lambda values: _sum_over_processes(values, model).to(device), device)
    return {"step_means": means}, measured.by_batch


def _sum_over_processes(sums: Tensor, model: nn.Module) -> Tensor:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return sums
    device = next(model.parameters()).device  # NCCL adds up on the accelerator only
    moved = sums.to(device)
    torch.distributed.all_reduce(moved)
    return moved.cpu()
