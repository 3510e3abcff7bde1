"""How the rows of several data sets become those of a run: which are used, how often, and in what order.

Rows are source rows here. One that became several examples is drawn with all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tunesmith.errors import DataError
from tunesmith.runtime.memory import available_memory_bytes

_BYTES_OF_A_DRAW = 64
"""Memory that the order of a mixture takes at most while it is drawn, per row: some arrays of 8 bytes each."""

MixStrategy = Literal["concat", "interleave_under", "interleave_over", "interleave_once"]
Draws = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Data set of each draw, and which of its rows it is. Shapes [draws]."""


@dataclass(frozen=True, slots=True)
class SetShare:
    """What a mixture takes of one data set."""

    name: str
    available: int
    """Rows that can be used, without those held back for evaluation."""

    used: int
    """How many of them the mixture has."""

    repeated: int
    """How often a row is there that was there before."""

    def render(self) -> str:
        """Return the numbers in words."""
        rows = "1 row" if self.available == 1 else f"{self.available:,} rows"
        return f"{self.name}: {rows} available, {self.used:,} used, {self.repeated:,} repeated"


@dataclass(frozen=True, slots=True)
class Mixture:
    """The rows of a run, as indices of its examples."""

    indices: NDArray[np.int64]
    """Examples in order; some may be there several times. Shape [examples]."""

    shares: tuple[SetShare, ...]


def mix_sets(
    names: Sequence[str],
    set_numbers: NDArray[np.int64],
    row_ids: NDArray[np.int64],
    uses: Sequence[NDArray[np.int64] | None],
    *,
    strategy: MixStrategy = "concat",
    probabilities: Sequence[float] = (),
    seed: int = 0,
) -> Mixture:
    """Mix the examples of several data sets.

    Args:
        names: Of the data sets.
        set_numbers: Data set of each example. Shape [examples].
        row_ids: Source row of each example; ascending, those of one row next to each other. Shape [examples].
        uses: For each data set how often each row is to be taken, by its order among all rows of `row_ids` that are of
            this data set; once where nothing is given.
        strategy: See `draw_rows`.
        probabilities: One for each data set, or none.
        seed: Start of the random numbers.

    Raises:
        DataError: A data set has no rows to interleave, or so small a probability that memory does not hold the draws.
    """
    rows, starts, sizes = np.unique(row_ids, return_index=True, return_counts=True)
    sets_of_rows = set_numbers[starts]
    members = [np.flatnonzero(sets_of_rows == number) for number in range(len(names))]
    lists = [_in_rounds(own, own_uses) for own, own_uses in zip(members, uses, strict=True)]
    empty = [name for name, own in zip(names, lists, strict=True) if not len(own)]
    if empty and strategy != "concat":
        raise DataError(
            f"mix_strategy is {strategy}, and data set {empty[0]!r} has no row left to draw, since all are held back "
            "for evaluation. Lower val_size, or leave the data set out."
        )
    lengths = [len(own) for own in lists]
    _check_bounded(names, lengths, strategy, probabilities)
    sets, places = draw_rows(lengths, strategy, probabilities, seed)
    drawn = np.empty(len(sets), dtype=np.int64)
    for number, own in enumerate(lists):
        mine = sets == number
        drawn[mine] = own[places[mine]]
    counts = np.bincount(drawn, minlength=len(rows))
    shares = tuple(
        SetShare(name, len(own), int(np.count_nonzero(counts[own])), int(np.maximum(counts[own] - 1, 0).sum()))
        for name, own in zip(names, members, strict=True)
    )
    return Mixture(_expand(starts[drawn], sizes[drawn]), shares)


def _check_bounded(
    names: Sequence[str], lengths: Sequence[int], strategy: MixStrategy, probabilities: Sequence[float]
) -> None:
    """Refuse to wait for data sets that are hardly ever drawn; only `interleave_over` waits for the slowest."""
    if strategy != "interleave_over" or not len(probabilities):
        return
    expected = [length / share for length, share in zip(lengths, _shares(probabilities), strict=True)]
    slowest = int(np.argmax(expected))
    needed, free = expected[slowest] * _BYTES_OF_A_DRAW, available_memory_bytes()
    if needed > free:
        raise DataError(
            f"mix_strategy is interleave_over, and with the probability {probabilities[slowest]:g} it takes about "
            f"{expected[slowest]:,.0f} rows, most of them repeated, until all {lengths[slowest]:,} rows of data set "
            f"{names[slowest]!r} have come. Their order alone needs {needed / 1e9:,.1f} GB of memory, and "
            f"{free / 1e9:,.1f} GB are free. Raise the probability, or take interleave_once, which repeats nothing."
        )


def _shares(probabilities: Sequence[float]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = np.asarray(probabilities) / np.sum(probabilities)
    return shares


def draw_rows(
    lengths: Sequence[int], strategy: MixStrategy, probabilities: Sequence[float] = (), seed: int = 0
) -> Draws:
    """Return from which data set each row comes and which of its rows it is; each gives its rows in their order.

    Args:
        lengths: Rows of each data set.
        strategy: `concat` takes one data set after the other. The others draw in turn, or with `probabilities`:
            `interleave_under` until one data set is used up, `interleave_over` until all are, beginning anew with those
            that were before, and `interleave_once` with those that are left.
        probabilities: One for each data set, or none.
        seed: Start of the random numbers.
    """
    if strategy == "concat":
        sets = np.repeat(np.arange(len(lengths)), lengths)
    elif strategy == "interleave_once":
        sets = _draw_once(lengths, probabilities, np.random.default_rng(seed))
    else:
        ends = max if strategy == "interleave_over" else min
        sets = _draw_until(lengths, probabilities, ends, np.random.default_rng(seed))
    places = np.empty(len(sets), dtype=np.int64)
    for number, length in enumerate(lengths):
        mine = np.flatnonzero(sets == number)
        places[mine] = np.arange(len(mine)) % max(length, 1)
    return sets, places


def _draw_until(
    lengths: Sequence[int],
    probabilities: Sequence[float],
    ends: Callable[[Sequence[float]], float],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw data sets until the first or the last one is used up."""
    if not len(probabilities):
        return np.tile(np.arange(len(lengths)), int(ends(lengths)))
    shares = _shares(probabilities)
    sets = np.zeros(0, dtype=np.int64)
    while True:
        # About as many as it takes: rows of the slowest or fastest data set by its probability, with a margin.
        expected = ends([length / share for length, share in zip(lengths, shares, strict=True)])
        sets = np.concatenate([sets, rng.choice(len(lengths), size=int(expected * 1.1) + 100, p=shares)])
        found = [np.flatnonzero(sets == number) for number in range(len(lengths))]
        last = [int(own[length - 1]) for own, length in zip(found, lengths, strict=True) if len(own) >= length]
        if last and (ends is min or len(last) == len(lengths)):
            return sets[: int(ends(last)) + 1]


def _draw_once(lengths: Sequence[int], probabilities: Sequence[float], rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw until one data set is used up, then among the others, and so on."""
    left = np.asarray(lengths, dtype=np.int64)
    parts: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)]
    while np.any(left):
        open_sets = np.flatnonzero(left)
        shares = [probabilities[number] for number in open_sets.tolist()] if len(probabilities) else ()
        drawn = open_sets[_draw_until(left[open_sets].tolist(), shares, min, rng)]
        parts.append(drawn)
        left -= np.bincount(drawn, minlength=len(left))
    return np.concatenate(parts)


def _in_rounds(rows: NDArray[np.int64], uses: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return rows as often as they are to be used, none again before all that are came once."""
    if uses is None:
        return rows
    most = int(uses.max(initial=0))
    return np.concatenate([np.zeros(0, dtype=np.int64), *(rows[uses > number] for number in range(most))])


def _expand(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices `starts[i]` to `starts[i] + sizes[i]` of all, end to end."""
    ends = np.cumsum(sizes)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)
    indices: NDArray[np.int64] = np.repeat(starts, sizes) + within
    return indices
