"""A micro-batch that does not fit into memory is done in parts: the same rows, and the same total gradient.

An objective gives sums, and the trainer divides by the items of the whole step. So the gradients of the parts of a
micro-batch add up to that of the whole, and nothing but the time it takes is different.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from tunesmith.errors import TrainingError
from tunesmith.objectives.base import LossSum

logger = logging.getLogger(__name__)

_OF_THE_WHOLE_STEP = ("step_means",)
"""What a batch is told about its step besides its rows; the same for all parts of it."""

_NO_HOST_MEMORY = ("can't allocate memory", "not enough memory", "bad_alloc")
"""Words of the errors in which PyTorch's CPU allocator, on Linux and on Windows, and the C++ library say so."""

_HALVED_STEP = (
    "Out of memory in a micro-batch%s of %s positions: it is done in %d parts, with the same rows and the same "
    "gradient, and so are others of that size from here on. A smaller per_device_train_batch_size with more "
    "gradient_accumulation_steps trains the same without the attempt."
)
_HALVED_EVALUATION = (
    "Out of memory in a batch%s of %s positions of the evaluation: it is measured in %d parts, which gives the same "
    "numbers, and so are others of that size from here on. A smaller per_device_eval_batch_size measures the same "
    "without the attempt."
)

Items = Sequence[Any]
"""What a data set gave for the rows of a micro-batch: examples, or lists of the examples in packed rows."""


@dataclass(slots=True)
class StepBatches:
    """The micro-batches of the step under way, and in how many parts each has to be done."""

    batches: list[Any] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    """How often each is halved."""

    number: int = 0
    """Of the micro-batch that comes next."""

    def restart(self, batches: list[Any]) -> None:
        """Begin a step."""
        self.batches, self.levels, self.number = batches, [0] * len(batches), 0


@dataclass(slots=True)
class Halving:
    """Knows what has turned out to be too much for the memory, and makes parts of micro-batches.

    Args:
        load_items: Gives the items of the micro-batch with a number in the step under way, once more.
        collator: Makes a batch of items.
    """

    load_items: Callable[[int], Items]
    collator: Callable[[Any], Any]
    too_large: int | None = None
    """The fewest positions that did not fit."""

    def first_level(self, batch: Any) -> int:
        """Return how often to halve a batch before it is tried."""
        if self.too_large is None:
            return 0
        level, positions = 0, int(batch["input_ids"].numel())
        while positions >= self.too_large:
            level, positions = level + 1, (positions + 1) // 2
        return level

    def parts(self, number: int, batch: Any, level: int) -> list[Any]:
        """Return the parts of a micro-batch, in order; the batch itself where it is not halved."""
        if level == 0:
            return [batch]
        shared = {key: batch[key] for key in _OF_THE_WHOLE_STEP if key in batch}
        return [{**self.collator(items), **shared} for items in split_items(self.load_items(number), level)]

    def can_be_halved(self, number: int, level: int) -> bool:
        """Return whether halving once more gives more parts."""
        items = self.load_items(number)
        return len(list(split_items(items, level + 1))) > len(list(split_items(items, level)))

    def note(self, batch: Any, level: int, *, trains: bool = True) -> None:
        """Remember that a batch did not fit, and say so."""
        positions = -(-int(batch["input_ids"].numel()) // 2**level)
        self.too_large = positions if self.too_large is None else min(self.too_large, positions)
        logger.warning(
            _HALVED_STEP if trains else _HALVED_EVALUATION,
            f" (part of {2**level})" if level else "",
            f"{positions:,}",
            2 ** (level + 1),
        )


@dataclass(slots=True)
class MeasuredParts:
    """Measures the batches of an evaluation, those that do not fit into memory in parts.

    Args:
        halving: Makes the parts.
        measure: Runs the objective on a batch.
        device: Where the model is.
    """

    halving: Halving
    measure: Callable[[Mapping[str, Any]], LossSum]
    device: torch.device

    def __call__(self, number: int, batch: Mapping[str, Any], known: Mapping[str, Any]) -> list[LossSum]:
        """Return what the parts of a batch came to.

        Args:
            number: Of the batch in the set.
            batch: As the collator made it.
            known: What was found out about the set before; what is of the whole batch is of no use to a part of it.

        Raises:
            TrainingError: A single row does not fit.
        """
        level = self.halving.first_level(batch)
        of_parts = {key: known[key] for key in _OF_THE_WHOLE_STEP if key in known}
        while True:
            try:
                with lack_of_memory_told():
                    parts = self.halving.parts(number, batch, level)
                    return [self.measure({**part, **(of_parts if level else known)}) for part in parts]
            except torch.OutOfMemoryError as error:
                failure = error
            # Outside of the handler, which keeps what did not fit alive.
            if not self.halving.can_be_halved(number, level):
                raise explain_too_long_to_measure(batch) from failure
            del failure
            release_memory(self.device)
            self.halving.note(batch, level, trains=False)
            level += 1


@contextmanager
def lack_of_memory_told() -> Iterator[None]:
    """Raise what it looks like when the memory of the machine runs out as what a GPU raises.

    Where the system promises no more memory than it has, or a limit is set (`ulimit -v`), that is an error too;
    anywhere else the system ends the process, and nothing can be done.

    Raises:
        torch.OutOfMemoryError: There is not enough memory for the block.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        is_known = isinstance(error, torch.OutOfMemoryError)
        if is_known or not (isinstance(error, MemoryError) or any(words in str(error) for words in _NO_HOST_MEMORY)):
            raise
        raise torch.OutOfMemoryError(str(error)) from error


def split_items(items: Items, level: int) -> Iterator[Items]:
    """Halve items as often as `level` says; what cannot be halved stays whole.

    Example:
        Items `[a b c]` once: `[a b] [c]`; a packed row `[[x y]]` once: `[[x]] [[y]]`.
    """
    if level == 0:
        yield items
        return
    first, second = _halve(items)
    yield from split_items(first, level - 1)
    if second:
        yield from split_items(second, level - 1)


def _halve(items: Items) -> tuple[Items, Items]:
    if len(items) > 1:
        middle = (len(items) + 1) // 2
        return items[:middle], items[middle:]
    (item,) = items
    if isinstance(item, list) and len(item) > 1:
        middle = (len(item) + 1) // 2
        return [item[:middle]], [item[middle:]]
    return items, []


def release_memory(device: torch.device) -> None:
    """Give memory that is kept for reuse back to the device: pieces of it may be too small for what comes next."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def explain_too_long(batch: Any) -> TrainingError:
    """Return the error for a row that does not fit by itself."""
    return TrainingError(
        f"Out of memory in a micro-batch of {int(batch['input_ids'].numel()):,} positions that holds a single row and "
        "cannot be halved. The run was stopped before the optimizer step, so the weights are as they were. Lower "
        "cutoff_len, set gradient_checkpointing: true, or train fewer weights (LoRA, quantization)."
    )


def explain_too_long_to_measure(batch: Mapping[str, Any]) -> TrainingError:
    """Return the error for a row of an evaluation that does not fit by itself."""
    return TrainingError(
        f"Out of memory in a batch of {int(batch['input_ids'].numel()):,} positions of the evaluation that holds a "
        "single row and cannot be halved. Lower cutoff_len, or leave out the longest rows of the evaluation set."
    )


def explain_lack(error: BaseException) -> TrainingError:
    """Return the error for memory that ran out where nothing can be done in parts."""
    return TrainingError(
        f"Out of memory outside of a micro-batch, such as for the model or what its optimizer keeps: {error}\n"
        "Train fewer weights (LoRA, quantization), or take an optimizer that keeps less (adafactor, "
        "adamw_8bit), or give the run more memory."
    )


def explain_single_pass(batch: Any, setting: str) -> TrainingError:
    """Return the error for a micro-batch that cannot be repeated, as its backward pass changes the weights.

    Args:
        batch: What did not fit.
        setting: What has the weights changed there.
    """
    return TrainingError(
        f"Out of memory in a micro-batch of {int(batch['input_ids'].numel()):,} positions, which `{setting}` does not "
        "let be done in halves: weights are updated during the backward pass. Go on from the last checkpoint with a "
        "lower per_device_train_batch_size, a lower cutoff_len, or gradient_checkpointing: true."
    )


def explain_lost_exchange() -> TrainingError:
    """Return the error for memory that ran out while processes were exchanging gradients."""
    return TrainingError(
        "Out of memory in the backward pass of a step's last micro-batch, while the processes were exchanging "
        "gradients: it cannot be repeated in parts, since the others have got theirs. Lower "
        "per_device_train_batch_size and raise gradient_accumulation_steps, which trains the same."
    )
