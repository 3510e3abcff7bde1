"""What is learnt, as a contract: an objective turns a batch into a summed loss and a count.

An objective never divides. The trainer divides once, by the number of items of the whole optimiser step over all
micro-batches and processes, which is why any split of the same rows gives the same gradients.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean whose division is left to whoever adds up the parts."""

    total: Tensor
    """Sum of the values, detached. Shape []."""

    count: Tensor
    """Number of values; where it is 0 in the end, there is no mean. Shape []."""


@dataclass(frozen=True, slots=True)
class LossSum:
    """A loss added up over items, with the count kept apart so that the trainer can divide once."""

    total: Tensor
    """Sum of the loss over all items of the batch, differentiable. Shape []."""

    items: Tensor
    """Number of items that were summed. Shape [], integer."""

    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    """Sums over the same items (for example the number of correct tokens), detached. Shape [] each."""

    means: Mapping[str, Mean] = field(default_factory=dict)
    """What is logged beside the loss, each with a count of its own. Every batch gives the same names, in one order, so
    that processes can add theirs up without asking."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found out about the rows of an optimiser step before the loss of any of them."""

    means: Mapping[str, Mean] = field(default_factory=dict)
    """What the loss of one item needs to know of all of them; the same names in every process."""

    by_batch: Sequence[Mapping[str, Any]] = ()
    """For each micro-batch what came up on the way and need not be computed again."""


class Objective(Protocol):
    """Turns a batch into a `LossSum`; holds hyperparameters and no training state."""

    @property
    def loss_is_per_token(self) -> bool:
        """Whether the loss is in nats per token, so that it has a perplexity."""
        ...

    def count_items(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the number of items the loss of this batch will be summed over, without running the model."""
        ...

    @property
    def measures_its_own_rows(self) -> bool:
        """Whether `measure` scores the very completions that `compute` scores.

        Where a step is one micro-batch they are then scored once: `measure` is not called, and the batch holds
        `reduce_means`, which takes this process's means from `compute` and returns those of all processes.
        """
        ...

    def measure(self, model: nn.Module, batches: Iterable[Mapping[str, Tensor]]) -> Measured:
        """Return what the loss of one item needs to know of all items of its optimiser step; most need nothing.

        The trainer adds the parts of all processes up and puts the means into each batch as `step_means`, with what
        `by_batch` has for it, before `compute`. In evaluation the whole set is one step.

        Args:
            model: As for `compute`; gradients are off.
            batches: All micro-batches of this process in the step.
        """
        ...

    def compute(self, model: nn.Module, batch: Mapping[str, Tensor]) -> LossSum:
        """Run the model on a batch and return the summed loss.

        Args:
            model: The model as the trainer wrapped it (peft, DDP ...); call it, do not unwrap it for the forward.
            batch: What the collator made, on the model's device, without the keys in `data.batches.BOOKKEEPING_KEYS`.
        """
        ...
