"""Raw rows to examples on the way: encoded some hundred at a time, packed with what the last ones left over."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tunesmith.data.account import Tally, describe_dropped
from tunesmith.data.batches import Example
from tunesmith.data.encoding import ChunkEncoder
from tunesmith.data.loading.attempts import Attempt
from tunesmith.data.loading.datasets import ChunkViews, cut_piece
from tunesmith.data.loading.encoded import EncodedChunk
from tunesmith.data.packing import best_fit_decreasing, concatenate_and_cut
from tunesmith.data.selection import RawChunk
from tunesmith.data.sources import RawRow
from tunesmith.data.streaming.mixing import StreamedRow
from tunesmith.data.streaming.shuffling import ShuffledRows
from tunesmith.errors import DataError

Item = Example | list[Example]
"""What a batch is made of: a row, or the samples of a packed one."""

Pack = Callable[[Sequence[Example]], tuple[list[list[Example]], list[Example]]]
"""Examples to full packs, and the examples that are kept for the next ones."""

_FULL = 0.9
"""Share of the room from which the emptiest pack is not kept for more rows."""


class WindowEncoder:
    """Encodes rows of several data sets that stand between each other.

    Args:
        encoders: One per data set.
        note: Told the id of the first row of each window before it is encoded, and of each row if that fails.
    """

    def __init__(self, encoders: Sequence[ChunkEncoder], note: Callable[[int], None] | None = None) -> None:
        self._encoders = encoders
        self._note = note or _forget

    def encode(self, rows: Sequence[StreamedRow]) -> tuple[list[Example], list[Tally]]:
        """Return the examples in the order of their rows, and what became of the rows of each data set."""
        self._note(rows[0].row_id)
        by_row: dict[int, list[Example]] = {}
        tallies: list[Tally] = []
        for number, encoder in enumerate(self._encoders):
            own = [place for place, row in enumerate(rows) if row.set_number == number]
            chunk, tally = self._encode_set(encoder, [rows[place] for place in own])
            views = ChunkViews(chunk, 0)
            for at in range(len(chunk)):
                example = views.example(at)
                place = own[example["row_id"]]
                example["row_id"] = rows[place].row_id
                by_row.setdefault(place, []).append(example)
            tallies.append(tally)
        return [example for place in sorted(by_row) for example in by_row[place]], tallies

    def _encode_set(self, encoder: ChunkEncoder, rows: Sequence[StreamedRow]) -> tuple[EncodedChunk, Tally]:
        raw = [RawRow(row.place, row.shard.file, row.values, row.problem) for row in rows]
        attempt = Attempt()
        with attempt:
            encoded: tuple[EncodedChunk, Tally] = encoder(RawChunk(0, raw))
            return encoded
        if attempt.failure is not None and not attempt.failure.is_final:  # one by one, to know which row it is
            for row, one in zip(rows, raw, strict=True):
                self._note(row.row_id)
                encoder(RawChunk(0, [one]))
        return encoder(RawChunk(0, raw))  # raises what it raised before


def _forget(row_id: int) -> None:
    """Take note of nothing."""


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


class ExampleStream:
    """Examples, or packs of them, of one consumer.

    Args:
        rows: Raw rows in the order of training.
        encoder: Makes examples of them.
        pack: Makes packs of examples; `None` gives single ones.
        window_rows: Raw rows that are encoded together.
        epochs: Passes over the rows after which it ends; without end when `None`.
    """

    def __init__(
        self,
        rows: ShuffledRows,
        encoder: WindowEncoder,
        pack: Pack | None,
        *,
        window_rows: int,
        num_sets: int,
        epochs: int | None = None,
    ) -> None:
        self._rows = rows
        self._encoder = encoder
        self._pack = pack
        self._window_rows = window_rows
        self._epochs = epochs
        self._window_start = rows.state()
        self._carried: list[Example] = []
        self._carried_before: list[Example] = []
        self._given = 0
        self._items: list[Item] = []
        self._tallies = [Tally() for _ in range(num_sets)]
        self._tallies_now = [tally.to_dict() for tally in self._tallies]
        self._tallies_before = self._tallies_now
        self._barren_epochs = 1  # one that is read to its end from here, without an example, is one too many
        self.is_ended = False

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
        self._rows.load(state["rows"])
        self._carried = list(state["carried"])
        self._tallies = [Tally(**values) for values in state["tallies"]]
        self._tallies_now = state["tallies"]
        self.is_ended = False
        self._barren_epochs = 0  # the rest of this epoch may have none
        self._next_window()
        self._given = state["given"]

    @property
    def progress(self) -> float:
        """About how many epochs are read; a block of rows ahead of what was given out."""
        return self._rows.progress

    @property
    def tallies(self) -> list[dict[str, Any]]:
        """What became of the rows read so far, per data set, as JSON values."""
        return self._tallies_now

    def _next_window(self) -> None:
        self._window_start = self._rows.state()
        self._carried_before = self._carried
        self._tallies_before = self._tallies_now
        self._given = 0
        rows = self._rows.take(self._window_rows)
        if not rows:
            self._items = self._end_epoch()
            return
        examples, tallies = self._encoder.encode(rows)
        for total, tally in zip(self._tallies, tallies, strict=True):
            total.add(tally)
        self._tallies_now = [tally.to_dict() for tally in self._tallies]
        if self._pack is None:
            self._items = list(examples)
        else:
            packs, self._carried = self._pack([*self._carried, *examples])
            self._items = list(packs)
        if examples:
            self._barren_epochs = 0

    def _end_epoch(self) -> list[Item]:
        """Return what is left to give out, and begin the next epoch if there is one."""
        epoch, _ = self._rows.place_in_run
        if self._epochs is not None and epoch + 1 >= self._epochs:
            self.is_ended = True
            rest, self._carried = self._carried, []
            return [rest] if rest else []
        self._barren_epochs += 1
        if self._barren_epochs > 1:
            if not any(tally.read for tally in self._tallies):
                raise DataError("The data sets have no rows for this process to read. Name others in dataset.")
            reasons = "\n".join(describe_dropped(tally) for tally in self._tallies if tally.dropped)
            raise DataError(f"Not one row of the data sets can be used:\n{reasons}")
        self._rows.start_epoch()
        return []
