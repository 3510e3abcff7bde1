"""Which rows each process gets: every row exactly once per epoch, whatever the number of processes.

Micro-batches are dealt out in turn. With 5 rows, micro-batches of 2 and two processes::

    process 0    [0 1]  [4]
    process 1    [2 3]  (filler)

Processes must take the same number of steps or they wait for each other for ever. The usual way out is to repeat rows
from the start of the epoch, which trains on some rows twice. Here the gap is filled with a copy of a row that has no
labels: it takes part in the communication and adds nothing to any sum.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from tunesmith.data.batches import Example
from tunesmith.data.collators import Collator
from tunesmith.data.loading.datasets import RowsAtOnce
from tunesmith.data.loading.samplers import EpochSampler
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.failures import FeedError
from tunesmith.training.io.feed import BatchFeed
from tunesmith.training.io.settings import LoaderPolicy


class EpochBatches(Protocol):
    """The micro-batches of one process in each epoch, as lists of row numbers."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch, counted from 0."""
        ...

    def __len__(self) -> int:
        """Return the number of micro-batches, the same on every process and in every epoch."""
        ...

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the micro-batches of this process."""
        ...


def count_batches(num_rows: int, batch_size: int, num_processes: int, *, drop_last: bool) -> int:
    """Return the number of micro-batches that each process takes in an epoch."""
    if drop_last:
        return num_rows // batch_size // num_processes
    return math.ceil(math.ceil(num_rows / batch_size) / num_processes)


class ProcessBatches:
    """The micro-batches of one process, as lists of row numbers; a negative number stands for a filler."""

    def __init__(self, sampler: EpochSampler, batch_size: int, ranks: Ranks, *, drop_last: bool = False) -> None:
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last
        self._ranks = ranks

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch, counted from 0."""
        self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        """Return the number of micro-batches, the same on every process."""
        return count_batches(len(self.sampler), self.batch_size, self._ranks.world_size, drop_last=self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the micro-batches of this process."""
        rows = list(self.sampler)
        for round_number in range(len(self)):
            start = (round_number * self._ranks.world_size + self._ranks.rank) * self.batch_size
            yield rows[start : start + self.batch_size] or [filler_index(rows[0])]


def filler_index(row: int) -> int:
    """Return the index under which `SilencedFillers` gives a row without its labels."""
    return -1 - row


class SilencedFillers(Dataset[Any]):
    """A data set whose negative indices give the same rows without labels."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self._gives_several = isinstance(rows, RowsAtOnce)

    def __len__(self) -> int:
        """Return the number of real rows."""
        return len(self.rows)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return several rows."""
        if self._gives_several and min(indices) >= 0:
            found: list[Any] = self.rows.__getitems__(indices)
            return found
        return [self[index] for index in indices]

    def __getitem__(self, index: int) -> Any:
        """Return a row, or for -1 - n row n without labels."""
        if index >= 0:
            return self.rows[index]
        row = self.rows[-1 - index]
        return [_silence(example) for example in row] if isinstance(row, list) else _silence(row)


def _silence(example: Example) -> Example:
    silent = example.copy()  # a pair keeps its borders
    silent["trained_spans"] = np.zeros(0, dtype=np.int32)
    return silent


class EpochLoader(DataLoader[Any]):
    """What transformers takes for a data loader: positions of an epoch, and behind each the batch from a feed.

    Trainer skips the batches of a resumed epoch by skipping what the batch sampler gives, which here are positions: the
    feed then begins at the right place, and no batch is made to be thrown away.
    """

    def __init__(self, feed: BatchFeed, batches: EpochBatches) -> None:
        self.feed = feed
        self.batches = batches
        super().__init__(
            _Served(feed),
            batch_sampler=_Positions(feed, batches),
            collate_fn=_as_it_is,
            # Its own generator, or starting a loader would draw from the one that dropout draws from.
            generator=torch.Generator().manual_seed(0),
        )

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """Yield the batches of an epoch straight from the feed: PyTorch's way around costs as much as a small batch."""
        assert self.batch_sampler is not None, "given when it was made"
        for (position,) in self.batch_sampler:
            yield self.feed.take(position)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch, counted from 0."""
        self.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]


class _Positions:
    """Opens an epoch and counts its batches."""

    def __init__(self, feed: BatchFeed, batches: EpochBatches) -> None:
        self._feed = feed
        self._batches = batches

    def set_epoch(self, epoch: int) -> None:
        self._batches.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[int]]:
        plan = list(self._batches)
        self._feed.open(plan)
        for position in range(len(plan)):
            yield [position]


class _Served(Dataset[Any]):
    """Batches by position, for a loader that believes them to be rows."""

    def __init__(self, feed: BatchFeed) -> None:
        self._feed = feed

    @property
    def rows(self) -> Any:
        """The data set behind."""
        return self._feed.dataset.rows

    def __len__(self) -> int:
        return len(self._feed.dataset)

    def __getitems__(self, positions: list[int]) -> Any:
        return self._feed.take(positions[0])


def _as_it_is(batch: Any) -> Any:
    return batch


class UpToTrouble:
    """The batches of a loader, up to the first that cannot be made.

    An evaluation ends there, and all processes hear of it before they add up their sums: one that left the others alone
    with those would have them wait for it.

    Args:
        loader: Of this process.
        tell: Called at the end of the batches with what went wrong, in all processes; raises where it did in one.
    """

    def __init__(self, loader: EpochLoader, tell: Callable[[FeedError | None], None]) -> None:
        self._loader = loader
        self._tell = tell

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches.

        Raises:
            FeedError: Some process could not make one of its batches.
        """
        failure = None
        try:
            yield from self._loader
        except FeedError as error:
            failure = error
        self._tell(failure)


def build_loader(
    dataset: Any,
    collator: Collator,
    batches: EpochBatches,
    *,
    policy: LoaderPolicy | None = None,
    ranks: Ranks | None = None,
    batches_per_step: int = 1,
) -> EpochLoader:
    """Return the loader of one process.

    Args:
        dataset: Rows by number.
        collator: Makes a batch of rows.
        batches: Which rows, in which order.
        policy: How batches are made ahead of time; without one, each is made when it is asked for.
        ranks: Of this process.
        batches_per_step: Micro-batches of an optimizer step.
    """
    feed = BatchFeed(
        SilencedFillers(dataset), collator, policy or LoaderPolicy(), ranks=ranks, batches_per_step=batches_per_step
    )
    return EpochLoader(feed, batches)
