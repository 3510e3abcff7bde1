"""The raw rows of one process: the shards of each data set in the order of an epoch, and the data sets mixed.

Everything here is a function of the seed, the epoch, the process and the number of rows given out. Nothing is kept but
counters.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tunesmith.data.streaming.cursors import Position, read_shard
from tunesmith.data.streaming.shards import Shard

MixStrategy = Literal["concat", "interleave_under", "interleave_over", "interleave_once"]


class StreamedRow(NamedTuple):
    """A raw row and where it comes from."""

    set_number: int
    shard: Shard
    place: int
    values: Any
    """By column; of a text file the line, see `parse_row`."""

    problem: str | None = None
    """See `PlacedRow.problem`."""


@dataclass(frozen=True, slots=True)
class Mixing:
    """How several data sets become one stream."""

    strategy: MixStrategy = "concat"
    """`concat`: all rows of all sets once, drawn in proportion to what is left of each. The others draw with
    `probabilities`, or in turn without: `interleave_under` until one set is used up, `interleave_over` until all are,
    repeating the others, `interleave_once` with those that are left, repeating none."""

    probabilities: tuple[float, ...] = ()


class SetReader:
    """The rows of one data set that one process reads in an epoch, shard after shard.

    Args:
        shards: Of this process.
        seed: Start of the random numbers.
        is_shuffled: Whether shards come in another order each time.
    """

    def __init__(self, shards: Sequence[Shard], seed: Sequence[int], *, is_shuffled: bool) -> None:
        self._shards = shards
        self._seed = tuple(seed)
        self._is_shuffled = is_shuffled
        self.start(0)

    def start(self, round_number: int) -> None:
        """Begin the rows again, in the order of a round (counted from 0 over the whole run)."""
        self.load({"round": round_number, "shard": 0, "place": None, "number": 0, "is_begun": False})

    def load(self, state: Mapping[str, Any]) -> None:
        """Go to where `state` was taken."""
        self.round: int = state["round"]
        self._done: int = state["shard"]
        order = np.arange(len(self._shards))
        if self._is_shuffled:
            order = np.random.default_rng([*self._seed, self.round]).permutation(len(self._shards))
        self._order: list[int] = order.tolist()
        sizes = [self._shards[number].num_bytes for number in reversed(self._order)]
        self._left_after = [0.0, *accumulate(sizes)]
        self._position = None if state["place"] is None else Position(state["place"], state["number"])
        self.is_begun: bool = state["is_begun"]
        """Whether a row of this round was given out."""

        self._rows = self._iterate()

    def state(self) -> dict[str, Any]:
        """Return where the next row is."""
        place, number = self._position or (None, 0)
        return {
            "round": self.round,
            "shard": self._done,
            "place": place,
            "number": number,
            "is_begun": self.is_begun,
        }

    @property
    def total_bytes(self) -> float:
        """About how much a round reads."""
        return self._left_after[-1]

    @property
    def remaining_bytes(self) -> float:
        """About how much is left of this round."""
        if self._done == len(self._order):
            return 0.0
        shard = self._shards[self._order[self._done]]
        current = shard.num_bytes if self._position is None else shard.left_from(self._position.place)
        return current + self._left_after[len(self._order) - self._done - 1]

    def next_row(self) -> tuple[Shard, int, Any, str | None] | None:
        """Return shard, place, values and problem of the next row; `None` at the end of the round."""
        return next(self._rows, None)

    def _iterate(self) -> Iterator[tuple[Shard, int, Any, str | None]]:
        while self._done < len(self._order):
            shard = self._shards[self._order[self._done]]
            for row in read_shard(shard, self._position, parses=False):
                self._position = Position(row.next_place, row.number)
                self.is_begun = True
                yield shard, row.place, row.values, row.problem
            self._position = None
            self._done += 1


class MixedReader:
    """The rows of all data sets that one process reads, epoch after epoch.

    Args:
        shards: Of this process, per data set; no set without a shard.
        mixing: How they become one stream.
        seed: Start of the random numbers; with the process it decides everything.
        process: Number of the process.
        is_shuffled: Whether shards come in another order in every epoch.
    """

    def __init__(
        self, shards: Sequence[Sequence[Shard]], mixing: Mixing, *, seed: int, process: int, is_shuffled: bool = True
    ) -> None:
        self._sets = [
            SetReader(own, (seed, process, number), is_shuffled=is_shuffled) for number, own in enumerate(shards)
        ]
        self._mixing = mixing
        self._seed = (seed, process)
        self.epoch = 0
        self.drawn = 0
        """Rows of this epoch that were given out."""

        self._ended: set[int] = set()
        self._barren: set[int] = set()
        """Sets of which this process has no row: of a small one others may have all."""

        self._draws: NDArray[np.float64] = np.zeros(0)
        self._draws_of = (-1, -1)

    def state(self) -> dict[str, Any]:
        """Return where the next row is, as JSON values."""
        return {
            "epoch": self.epoch,
            "drawn": self.drawn,
            "ended": sorted(self._ended),
            "barren": sorted(self._barren),
            "sets": [reader.state() for reader in self._sets],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go to where `state` was taken."""
        self.epoch = state["epoch"]
        self.drawn = state["drawn"]
        self._ended = set(state["ended"])
        self._barren = set(state["barren"])
        for reader, own in zip(self._sets, state["sets"], strict=True):
            reader.load(own)

    @property
    def progress(self) -> float:
        """About how many epochs are done."""
        left = sum(reader.remaining_bytes for reader in self._sets)
        return self.epoch + 1 - left / max(1.0, sum(reader.total_bytes for reader in self._sets))

    def rows(self) -> Iterator[StreamedRow]:
        """Yield the rows that are left of this epoch. Ends at its end; `start_epoch` begins the next."""
        while (number := self._choose()) is not None:
            found = self._sets[number].next_row()
            if found is not None:
                self.drawn += 1
                yield StreamedRow(number, *found)
            elif not self._end(number):
                return

    def start_epoch(self) -> None:
        """Begin the next epoch. With `interleave_over`, a set that was repeated goes on in a round of its own."""
        self.epoch += 1
        self.drawn = 0
        self._ended = set(self._barren)
        for reader in self._sets:
            reader.start(reader.round + 1)

    def _choose(self) -> int | None:
        """Return the set of the next row; nothing when all have ended."""
        strategy = self._mixing.strategy
        if strategy == "interleave_under" and self._ended:
            return None
        gone = self._barren if strategy == "interleave_over" else self._ended
        left = [number for number in range(len(self._sets)) if number not in gone]
        if not left:
            return None
        if len(left) == 1:
            return left[0]
        if strategy == "concat":
            weights = [self._sets[number].remaining_bytes for number in left]
        elif self._mixing.probabilities:
            weights = [self._mixing.probabilities[number] for number in left]
        else:
            return left[self.drawn % len(left)]
        point = self._draw() * sum(weights)
        for number, weight in zip(left, weights, strict=True):
            point -= weight
            if point < 0:
                return number
        return left[-1]

    def _end(self, number: int) -> bool:
        """Note that a set has no more rows, and return whether the epoch goes on."""
        self._ended.add(number)
        if self._mixing.strategy == "interleave_under":
            return False
        if len(self._ended) == len(self._sets):
            return False
        if self._mixing.strategy == "interleave_over":
            if not self._sets[number].is_begun:  # to begin it again would go on for ever
                self._barren.add(number)
            self._sets[number].start(self._sets[number].round + 1)
        return True

    def _draw(self) -> float:
        """Return the random number of this row; a thousand are made at once, since making one costs as much."""
        block, place = divmod(self.drawn, 1000)
        if self._draws_of != (self.epoch, block):
            self._draws = np.random.default_rng([*self._seed, 1, self.epoch, block]).random(1000)
            self._draws_of = (self.epoch, block)
        return float(self._draws[place])
