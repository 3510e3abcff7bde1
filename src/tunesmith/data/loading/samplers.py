"""Orders of rows: a function of seed, epoch and lengths alone, so that a resumed run sees what it would have seen."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Sampler

SamplingStrategy = Literal["random", "sequential", "group_by_length"]

_BATCHES_PER_GROUP = 50
"""Batches that are sorted by length together. More saves a little more padding and makes batches more alike."""


class EpochSampler(Sampler[int], ABC):
    """Gives row numbers in an order that may change with every epoch; call `set_epoch` before each.

    Every process of a run gives the same order; whoever makes batches of it shares them out.
    """

    def __init__(self, num_rows: int, seed: int = 0) -> None:
        self.num_rows = num_rows
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next."""
        self.epoch = epoch

    @abstractmethod
    def order(self) -> NDArray[np.int64]:
        """Return every row number once, in the order of the current epoch. Shape [rows]."""

    def __iter__(self) -> Iterator[int]:
        return iter(self.order().tolist())

    def __len__(self) -> int:
        return self.num_rows

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.epoch])


class SequentialSampler(EpochSampler):
    """Gives the rows as they stand, every epoch."""

    def order(self) -> NDArray[np.int64]:
        """Return 0 to the number of rows."""
        return np.arange(self.num_rows, dtype=np.int64)


class RandomSampler(EpochSampler):
    """Gives the rows in a new random order every epoch."""

    def order(self) -> NDArray[np.int64]:
        """Return a permutation drawn from seed and epoch."""
        return self._rng().permutation(self.num_rows)


class LengthGroupedSampler(EpochSampler):
    """Gives rows of similar length one after the other, so that padded batches hold little padding.

    Rows are shuffled, groups of some 50 batches are sorted by length, and the batches are shuffled. The batch with the
    longest row comes first, so that a lack of memory shows at once.

    Args:
        lengths: Tokens of each row.
        batch_size: Rows of one micro-batch over all processes.
        seed: Start of the random numbers.
    """

    def __init__(self, lengths: ArrayLike, batch_size: int, seed: int = 0) -> None:
        self.lengths = np.asarray(lengths)
        super().__init__(len(self.lengths), seed)
        self.batch_size = batch_size

    def order(self) -> NDArray[np.int64]:
        """Return a permutation in which each run of `batch_size` rows has similar lengths."""
        rng = self._rng()
        shuffled = rng.permutation(self.num_rows)
        group = self.batch_size * _BATCHES_PER_GROUP
        # A stable sort by (group, length) sorts every group at once.
        by_length = shuffled[np.lexsort((-self.lengths[shuffled], np.arange(self.num_rows) // group))]
        num_whole = self.num_rows // self.batch_size
        batches = by_length[: num_whole * self.batch_size].reshape(num_whole, self.batch_size)
        batches = batches[rng.permutation(num_whole)]
        if num_whole:
            longest = int(np.argmax(self.lengths[batches].max(axis=1)))
            batches[[0, longest]] = batches[[longest, 0]]
        return np.concatenate([batches.reshape(-1), by_length[num_whole * self.batch_size :]])


def build_sampler(strategy: SamplingStrategy, lengths: ArrayLike, *, batch_size: int, seed: int = 0) -> EpochSampler:
    """Build the sampler of `train_sampling_strategy`.

    Args:
        strategy: `random`, `sequential` or `group_by_length`.
        lengths: Tokens of each row.
        batch_size: Rows of one micro-batch over all processes; only `group_by_length` looks at it.
        seed: Start of the random numbers; with the epoch it decides the order.
    """
    if strategy == "group_by_length":
        return LengthGroupedSampler(lengths, batch_size, seed)
    num_rows = len(np.asarray(lengths))
    return SequentialSampler(num_rows) if strategy == "sequential" else RandomSampler(num_rows, seed)
