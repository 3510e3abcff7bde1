"""Encoded rows on the way to batches: a window of some hundred at a time, packed with what the last one left over."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tunesmith.data.account import Tally, describe_dropped
from tunesmith.data.batches import Example
from tunesmith.data.loading.datasets import cut_piece
from tunesmith.data.packing import best_fit_decreasing, concatenate_and_cut
from tunesmith.data.streaming.pieces import OpenPieces, Piece, PieceQueue, TakePiece, build_examples
from tunesmith.errors import DataError, TunesmithError

Item = Example | list[Example]
"""What a batch is made of: a row, or the samples of a packed one."""

Pack = Callable[[Sequence[Example]], tuple[list[list[Example]], list[Example]]]
"""Examples to full packs, and the examples that are kept for the next ones."""

_FULL = 0.9
"""Share of the room from which the emptiest pack is not kept for more rows."""


def pack_whole(examples: Sequence[Example], capacity: int) -> tuple[list[list[Example]], list[Example]]:
    """Pack examples without splitting one; the emptiest pack is kept back if it is not nearly full."""
    packs = best_fit_decreasing([len(example["input_ids"]) for example in examples], capacity)
    packs.sort(key=min)  # in the order of the rows, and not the longest ones first
    filled = [[examples[row] for row in sorted(pack)] for pack in packs]
    if not filled:
        return [], []
    sizes = [sum(len(example["input_ids"]) for example in pack) for pack in filled]
    emptiest = int(np.argmin(sizes))
    rest = filled.pop(emptiest) if sizes[emptiest] < _FULL * capacity else []
    return filled, rest


def pack_cut(examples: Sequence[Example], capacity: int) -> tuple[list[list[Example]], list[Example]]:
    """Lay examples end to end and cut them into full blocks; what does not fill one is kept back."""
    blocks = concatenate_and_cut([len(example["input_ids"]) for example in examples], capacity)
    filled = [[cut_piece(examples[row], start, end) for row, start, end in block] for block in blocks]
    is_full = not filled or int(blocks.tokens[-1]) == capacity
    rest = [] if is_full else filled.pop()
    return filled, rest


class _EncodedPiece(NamedTuple):
    piece: Piece
    examples: list[Example]
    tallies: Mapping[int, Tally]


class ExampleStream:
    """Examples, or packs of them, of one process.

    While a window is given out the pieces of the next one are collected, in the same measure: no batch has to wait for
    a whole window.

    Args:
        queue: Raw rows in pieces.
        open_pieces: Has them encoded.
        pack: Makes packs of examples; `None` gives single ones.
        window_pieces: Pieces of a whole window.
        num_sets: Data sets.
    """

    def __init__(
        self, queue: PieceQueue, open_pieces: OpenPieces, pack: Pack | None, *, window_pieces: int, num_sets: int
    ) -> None:
        self._queue = queue
        self._open_pieces = open_pieces
        self._pack = pack
        self._window_pieces = window_pieces
        self._take: TakePiece | None = None
        self._position = 0
        self._coming: list[_EncodedPiece] = []
        self._error: TunesmithError | None = None
        self._window_start = queue.start
        self._carried: list[Example] = []
        self._carried_before: list[Example] = []
        self._given = 0
        self._items: list[Item] = []
        self._tallies = [Tally() for _ in range(num_sets)]
        self._tallies_now = [tally.to_dict() for tally in self._tallies]
        self._tallies_before = self._tallies_now
        self._barren_epochs = 1  # one that is read to its end from here, without an example, is one too many
        self.is_ended = False
        self.progress = 0.0
        """About how many epochs are read; a block of rows ahead of what was given out."""

    def __iter__(self) -> Iterator[Item]:
        while (item := self.next_item()) is not None:
            yield item

    def next_item(self) -> Item | None:
        """Return the next example or pack; `None` after the last.

        Raises:
            DataError: Not one row of a whole pass over them can be used.
        """
        while self._given == len(self._items):
            if self.is_ended:
                return None
            self._next_window()
        self._given += 1
        self._collect_ahead()
        return self._items[self._given - 1]

    def state(self) -> dict[str, Any]:
        """Return where the next item is. Cheap: the same values until the window has been given out."""
        return {
            "rows": self._window_start,
            "carried": self._carried_before,
            "tallies": self._tallies_before,
            "given": self._given,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go to where `state` was taken: the window is read, encoded and packed again."""
        self._queue.load(state["rows"])
        self._take, self._coming, self._error = None, [], None
        self._carried = list(state["carried"])
        self._tallies = [Tally(**values) for values in state["tallies"]]
        self._tallies_now = state["tallies"]
        self.is_ended = False
        self._barren_epochs = 0  # the rest of this epoch may have none
        self._next_window()
        self._given = state["given"]

    @property
    def tallies(self) -> list[dict[str, Any]]:
        """What became of the rows read so far, per data set, as JSON values."""
        return self._tallies_now

    # -- pieces ------------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Add the next piece to those of the coming window."""
        if self._take is None:
            self._take, self._position = self._open_pieces(self._queue), 0
        encoded = self._take(self._position)
        piece = self._queue.pop(self._position)
        self._position += 1
        self._coming.append(_EncodedPiece(piece, build_examples(encoded, piece.rows), encoded["tallies"]))

    @property
    def _is_whole(self) -> bool:
        """Whether all pieces of the coming window are there."""
        return bool(self._coming) and self._coming[-1].piece.is_last

    def _collect_ahead(self) -> None:
        wanted = self._given * self._window_pieces // len(self._items)
        try:
            while len(self._coming) < wanted and not self._is_whole and self._error is None:
                self._collect()
        except TunesmithError as error:  # what is there already can be trained on first
            self._error = error

    # -- windows -----------------------------------------------------------------------------------------------------

    def _next_window(self) -> None:
        if self._error is not None:
            raise self._error
        while not self._is_whole:
            self._collect()
        window, self._coming = self._coming, []
        first = window[0].piece
        self._window_start, self.progress = first.window_start, first.progress
        self._carried_before = self._carried
        self._tallies_before = self._tallies_now
        self._given = 0
        if first.ends_epoch:
            self._items = self._end_epoch(ends_stream=first.ends_stream)
            return
        examples = [example for piece in window for example in piece.examples]
        for piece in window:
            for number, tally in piece.tallies.items():
                self._tallies[number].add(tally)
        self._tallies_now = [tally.to_dict() for tally in self._tallies]
        if self._pack is None:
            self._items = list(examples)
        else:
            packs, self._carried = self._pack([*self._carried, *examples])
            self._items = list(packs)
        if examples:
            self._barren_epochs = 0

    def _end_epoch(self, *, ends_stream: bool) -> list[Item]:
        """Return what is left to give out."""
        if ends_stream:
            self.is_ended = True
            rest, self._carried = self._carried, []
            return [rest] if rest else []
        self._barren_epochs += 1
        if self._barren_epochs > 1:
            if not any(tally.read for tally in self._tallies):
                raise DataError("The data sets have no rows for this process to read. Name others in dataset.")
            reasons = "\n".join(describe_dropped(tally) for tally in self._tallies if tally.dropped)
            raise DataError(f"Not one row of the data sets can be used:\n{reasons}")
        return []
