"""Which rows share a packed row: best-fit-decreasing for conversations, concatenate-and-cut for documents.

Both work on lengths alone and over the whole set, so that the plan is made once, is the same in every process
and can be tested without a tokenizer.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Piece(NamedTuple):
    """Tokens `start` to `end` (half-open) of one row; whole rows run from 0 to their length."""

    row: int
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class Packs(Sequence[list[Piece]]):
    """Pieces in packs, kept as four flat arrays: millions of rows cost 32 bytes each and pickle quickly."""

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    borders: NDArray[np.int64]
    """Pack `i` holds the pieces `borders[i]` to `borders[i + 1]`. Shape [packs + 1]."""

    @classmethod
    def of_whole_rows(cls, packs: Sequence[Sequence[int]], lengths: ArrayLike) -> "Packs":
        """Build packs that hold each row in one piece."""
        borders = np.zeros(len(packs) + 1, dtype=np.int64)
        np.cumsum([len(pack) for pack in packs], out=borders[1:])
        rows = np.fromiter((row for pack in packs for row in pack), dtype=np.int64, count=int(borders[-1]))
        ends = np.asarray(lengths, dtype=np.int64)[rows]
        return cls(rows, np.zeros_like(ends), ends, borders)

    @property
    def tokens(self) -> NDArray[np.int64]:
        """Tokens in each pack. Shape [packs]."""
        totals = np.concatenate([[0], np.cumsum(self.ends - self.starts)])
        return np.diff(totals[self.borders])

    def __len__(self) -> int:
        return len(self.borders) - 1

    def __getitem__(self, pack: int) -> list[Piece]:  # type: ignore[override]  # slices have no use here
        if not -len(self) <= pack < len(self):
            raise IndexError(f"pack {pack} of {len(self)}")
        first, last = self.borders[pack % len(self)], self.borders[pack % len(self) + 1]
        part = slice(first, last)
        columns = (self.rows[part].tolist(), self.starts[part].tolist(), self.ends[part].tolist())
        return [Piece(*values) for values in zip(*columns, strict=True)]

    def __iter__(self) -> Iterator[list[Piece]]:
        return (self[pack] for pack in range(len(self)))


def best_fit_decreasing(lengths: Sequence[int] | NDArray[np.integer], capacity: int) -> list[list[int]]:
    """Put every row into exactly one pack of at most `capacity` tokens, never splitting a row.

    The longest row goes first, each into the open pack where it leaves the least room. For many rows at most
    11/9 of the fewest possible packs are used (Johnson 1974); real length profiles fill over 99% of the room.

    The cost is O(n log n): open packs are kept by their room in a sorted list, which has at most `capacity`
    entries however many packs are open.

    Args:
        lengths: Tokens in each row, 1 to `capacity`.
        capacity: Tokens that a pack may hold.

    Returns:
        Row numbers of each pack, ascending, and packs by their first row: a run without shuffling goes through the rows
        about as they stand, not from the longest to the shortest. The result depends on the arguments alone.
    """
    sizes = _checked_lengths(lengths, capacity)
    if not len(sizes):
        return []
    shortest = int(sizes.min())
    order = np.argsort(-sizes, kind="stable")
    packs: list[list[int]] = []
    rooms: list[int] = []
    packs_by_room: dict[int, list[int]] = {}
    for row, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        place = bisect_left(rooms, size)
        if place == len(rooms):
            pack, room = len(packs), capacity - size
            packs.append([row])
        else:
            room = rooms[place]
            pack = packs_by_room[room].pop()
            if not packs_by_room[room]:
                del rooms[place], packs_by_room[room]
            packs[pack].append(row)
            room -= size
        if room < shortest:
            continue  # nothing will ever fit: leave it out of the search
        if room in packs_by_room:
            packs_by_room[room].append(pack)
        else:
            packs_by_room[room] = [pack]
            insort(rooms, room)
    return sorted(map(sorted, packs))


def concatenate_and_cut(lengths: Sequence[int] | NDArray[np.integer], block: int) -> Packs:
    """Lay all rows end to end and cut the result every `block` tokens; every token is kept.

    Example:
        Rows of 5 and 4 tokens in blocks of 4: `[(0, 0, 4)], [(0, 4, 5), (1, 0, 3)], [(1, 3, 4)]`.

    Args:
        lengths: Tokens in each row; rows of 0 tokens leave no piece.
        block: Tokens in each block but the last, which holds the remainder.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    if block < 1:
        raise ValueError(f"block is {block}; a block holds 1 token or more")
    if len(sizes) and int(sizes.min()) < 0:
        raise ValueError("a length is negative")
    row_ends = np.cumsum(sizes)
    total = int(row_ends[-1]) if len(sizes) else 0
    cuts = np.union1d(row_ends[sizes > 0], np.arange(block, total, block, dtype=np.int64))
    starts = np.concatenate([np.zeros(min(total, 1), dtype=np.int64), cuts[:-1]])
    rows = np.searchsorted(row_ends, starts, side="right")
    row_starts = row_ends[rows] - sizes[rows]
    num_blocks = -(-total // block)
    borders = np.searchsorted(starts, np.arange(num_blocks + 1, dtype=np.int64) * block)
    return Packs(rows, starts - row_starts, cuts - row_starts, borders.astype(np.int64))


def _checked_lengths(lengths: Sequence[int] | NDArray[np.integer], capacity: int) -> NDArray[np.int64]:
    sizes = np.asarray(lengths, dtype=np.int64)
    wrong = np.flatnonzero((sizes < 1) | (sizes > capacity))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"row {row} has {int(sizes[row])} tokens; rows of 1 to {capacity} tokens (the capacity) can be "
            f"packed without splitting. {len(wrong)} of {len(sizes)} rows are outside; "
            "truncate or drop them first"
        )
    return sizes
