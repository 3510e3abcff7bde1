"""Micro-batches by tokens instead of rows: each takes about the same memory, whatever the lengths of its rows.

Rows of similar length stand together, as with `group_by_length`, and a batch holds as many as the budget allows.
Lengths are rounded up to a few steps first. The cuts are made in the sorted list of rounded lengths, which is the same
in every epoch, so every epoch has the same number of batches (on which the schedule of the learning rate depends),
while rows of the same step are dealt out anew each time.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tunesmith.config import RunConfig
from tunesmith.data.batches import BatchLayout
from tunesmith.data.prepared import TrainableDataset
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.row_tokens import count_row_tokens

_LEAST_STEP = 8
_STEPS_PER_DOUBLING = 8
"""Rounding up costs at most an eighth of the budget, and half of that on average."""


class TokenBatches:
    """The micro-batches of one process, as lists of row numbers; a negative number stands for a filler.

    Args:
        lengths: Tokens of each row.
        budget: Most tokens of a micro-batch. A row that is longer has one for itself.
        ranks: Of this process; batches are dealt out to all of them in turn.
        is_padded: Count a batch as its rows times the longest of them, padding included.
        is_shuffled: Deal out rows and batches anew each epoch; otherwise batches are cut from the rows as they stand.
        seed: Start of the random numbers; with the epoch it decides the order.
    """

    def __init__(
        self,
        lengths: ArrayLike,
        budget: int,
        ranks: Ranks | None = None,
        *,
        is_padded: bool = False,
        is_shuffled: bool = True,
        seed: int = 0,
    ) -> None:
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._rounded = round_lengths(self._lengths) if is_shuffled else self._lengths
        order = np.sort(self._rounded) if is_shuffled else self._rounded
        self._cuts = find_cuts(order, budget, is_padded=is_padded)
        self._budget = budget
        self._ranks = ranks or Ranks()
        self._is_shuffled = is_shuffled
        self._seed = seed
        self._epoch = 0

    @property
    def num_batches(self) -> int:
        """Micro-batches of an epoch, over all processes."""
        return len(self._cuts) - 1

    @property
    def num_over_budget(self) -> int:
        """Rows that are longer than the budget."""
        return int((self._lengths > self._budget).sum())

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch, counted from 0."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Return the number of micro-batches, the same on every process."""
        return math.ceil(self.num_batches / self._ranks.world_size)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the micro-batches of this process."""
        batches = self._batches()
        for round_number in range(len(self)):
            number = round_number * self._ranks.world_size + self._ranks.rank
            # Processes take the same number of steps: a copy of a row without labels fills the gap.
            yield batches[number].tolist() if number < len(batches) else [-1 - int(batches[0][0])]

    def _batches(self) -> list[NDArray[np.int64]]:
        if not self._is_shuffled:
            return self._cut(np.arange(len(self._lengths), dtype=np.int64))
        rng = np.random.default_rng([self._seed, self._epoch])
        batches = self._cut(np.lexsort((rng.random(len(self._rounded)), self._rounded)))
        shuffled = [batches[number] for number in rng.permutation(len(batches))]
        # The one with the most tokens first, so that a lack of memory shows at once.
        largest = max(range(len(shuffled)), key=lambda number: int(self._lengths[shuffled[number]].sum()), default=0)
        if shuffled:
            shuffled[0], shuffled[largest] = shuffled[largest], shuffled[0]
        return shuffled

    def _cut(self, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        return [rows[start:end] for start, end in zip(self._cuts, self._cuts[1:], strict=False)]


def find_token_batches(
    config: RunConfig, rows: TrainableDataset, layout: BatchLayout, ranks: Ranks
) -> TokenBatches | None:
    """Return the micro-batches that `tokens_per_device_batch` asks for; `None` where it is not set."""
    budget, training = config.loading.tokens_per_device_batch, config.training
    if budget is None:
        return None
    is_sequential = config.loading.disable_shuffling or config.loading.train_sampling_strategy == "sequential"
    return TokenBatches(
        count_row_tokens(rows, layout),
        budget,
        ranks,
        is_padded=layout == "padded",
        is_shuffled=not is_sequential,
        seed=training.seed if training.data_seed is None else training.data_seed,
    )


def round_lengths(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round lengths up to eight steps between one power of two and the next. Shape [rows].

    Example:
        3 becomes 8, 70 becomes 72, 130 becomes 144.
    """
    powers = 2 ** np.floor(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    steps = np.maximum(_LEAST_STEP, powers // _STEPS_PER_DOUBLING)
    rounded: NDArray[np.int64] = -(-lengths // steps) * steps
    return rounded


def find_cuts(lengths: NDArray[np.int64], budget: int, *, is_padded: bool) -> list[int]:
    """Return where a list of rows is cut into batches: the first position of each, and the end.

    Args:
        lengths: Tokens of the rows in order. Shape [rows].
        budget: Most tokens of a batch; a longer row stands alone.
        is_padded: Count each row of a batch as long as its longest.
    """
    cuts, begin, total, longest = [0], 0, 0, 0
    for position, length in enumerate(lengths.tolist()):
        size = (position - begin + 1) * max(longest, length) if is_padded else total + length
        if size > budget and position > begin:
            cuts.append(position)
            begin, total, longest = position, 0, 0
        total, longest = total + length, max(longest, length)
    if len(lengths):
        cuts.append(len(lengths))
    return cuts
