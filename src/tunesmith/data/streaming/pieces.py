"""Rows of a stream in pieces: read in order by the process that trains, encoded by it or by any number of workers.

Reading rows takes a small part of the time that encoding them takes, and parsing lines is left to whoever encodes
them. So one process reads all rows that it trains on, and who encodes them has no part in their order: workers may
become more or fewer between any two pieces.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from tunesmith.data.account import Tally
from tunesmith.data.batches import Example
from tunesmith.data.encoding import ChunkEncoder
from tunesmith.data.loading.attempts import Attempt, Failure
from tunesmith.data.loading.datasets import ChunkViews
from tunesmith.data.loading.encoded import EncodedChunk
from tunesmith.data.selection import RawChunk
from tunesmith.data.sources import RawRow
from tunesmith.data.sources.problems import MalformedRow
from tunesmith.data.streaming.cursors import parse_row
from tunesmith.data.streaming.places import build_row_id
from tunesmith.data.streaming.shuffling import ShuffledRows

PIECE_ROWS = 64
"""Raw rows of a piece: some ten milliseconds of work, beside which sending it to a worker is little."""

_LARGE = ("input_ids", "trained_spans")
"""Arrays of a chunk that travel as tensors: of those a long one takes the way through shared memory."""

NoteRow = Callable[[int | None], None]
"""Told the id of the row that is encoded, or that none is."""


class SentRow(NamedTuple):
    """A raw row on its way to whoever encodes it."""

    set_number: int
    file_number: int
    place: int
    values: Any
    """By column; of a text file the line, see `parse_row`."""

    problem: str | None
    """What is wrong with a row that is malformed in its file."""

    @property
    def row_id(self) -> int:
        """File and place as one number."""
        return build_row_id(self.file_number, self.place)


RawPiece = Sequence[SentRow]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a window, or the end of an epoch."""

    rows: RawPiece
    window_start: Mapping[str, Any]
    """Where the rows stood when the window was begun, see `ShuffledRows.state`."""

    progress: float
    """About how many epochs were read with its window."""

    is_last: bool
    """Of its window."""

    ends_epoch: bool = False
    """Whether it has no rows because the epoch has no more."""

    ends_stream: bool = False


class PieceQueue:
    """The pieces of one process by position. Those that were not taken out yet can be asked for again.

    Args:
        rows: Raw rows in the order of training.
        window_rows: Raw rows that are packed together; no piece goes beyond the end of a window.
        piece_rows: Raw rows that are encoded together.
        epochs: Passes over the rows; without end when `None`.
    """

    def __init__(self, rows: ShuffledRows, *, window_rows: int, piece_rows: int, epochs: int | None) -> None:
        self._rows = rows
        self._window_rows = window_rows
        self._piece_rows = piece_rows
        self._epochs = epochs
        self._pieces: dict[int, Piece] = {}
        self._next = 0
        self._start: Mapping[str, Any] = rows.state()
        self._has_to_return = False
        self._failure: Failure | None = None
        self._is_told = False
        self.error: BaseException | None = None
        """What the failure was made of that comes instead of pieces."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Let the pieces begin at a window that `state` names. It is read when the first piece is asked for."""
        self._pieces, self._next = {}, 0
        self._failure, self._is_told = None, False
        self._start, self._has_to_return = state, True

    @property
    def start(self) -> Mapping[str, Any]:
        """Where the window stands that was read last, or is read first."""
        return self._start

    def __len__(self) -> int:
        """Return a number that no run reaches: behind the last row, pieces without rows follow."""
        return sys.maxsize

    def __getitem__(self, position: int) -> RawPiece | Failure:
        """Return the rows of a piece, or what went wrong when they were read.

        Behind a failure nothing is read. To ask for the position of a failure once more tries it again.
        """
        if position == self._next and self._is_told:
            self._failure, self._is_told = None, False
        while position >= self._next and self._failure is None:
            self._read_window()
        if self._failure is None or position < self._next:
            return self._pieces[position].rows
        self._is_told = True
        return self._failure

    def pop(self, position: int) -> Piece:
        """Take out a piece that was encoded."""
        return self._pieces.pop(position)

    def _read_window(self) -> None:
        attempt = Attempt()
        with attempt:
            if self._has_to_return:
                self._rows.load(self._start)
            else:
                self._start = self._rows.state()
            attempt.made = self._rows.take(self._window_rows)
        self._failure, self.error = attempt.failure, attempt.error
        self._has_to_return = attempt.failure is not None
        if attempt.failure is None:
            self._add_window(attempt.made)

    def _add_window(self, rows: Sequence[Any]) -> None:
        sent = [SentRow(row.set_number, row.shard.file_number, row.place, row.values, row.problem) for row in rows]
        progress = self._rows.progress
        for first in range(0, len(sent), self._piece_rows):
            is_last = first + self._piece_rows >= len(sent)
            self._add(Piece(sent[first : first + self._piece_rows], self._start, progress, is_last))
        if not sent:
            epoch, _ = self._rows.place_in_run
            is_over = self._epochs is not None and epoch + 1 >= self._epochs
            self._add(Piece((), self._start, progress, is_last=True, ends_epoch=True, ends_stream=is_over))
            if not is_over:
                self._rows.start_epoch()

    def _add(self, piece: Piece) -> None:
        self._pieces[self._next] = piece
        self._next += 1


class PieceEncoder:
    """Encodes rows of several data sets that stand between each other. Travels to worker processes.

    Args:
        encoders: One per data set.
        files: Every file by its number.
    """

    def __init__(self, encoders: Sequence[ChunkEncoder], files: Mapping[int, Path]) -> None:
        self._encoders = encoders
        self._files = files

    def encode(self, piece: RawPiece, note: NoteRow | None = None) -> dict[str, Any]:
        """Return the examples of a piece in a form that travels well, and what became of the rows of each data set.

        Args:
            piece: Raw rows.
            note: Told the id of the first row before all are encoded together, and of each row if that fails.
        """
        note = note or _forget
        chunks: dict[str, dict[str, Any]] = {}
        tallies: dict[int, Tally] = {}
        if piece:
            note(piece[0].row_id)
        for number, encoder in enumerate(self._encoders):
            own = [row for row in piece if row.set_number == number]
            if own:
                chunk, tallies[number] = self._encode_set(encoder, own, note)
                arrays = {field.name: getattr(chunk, field.name) for field in fields(EncodedChunk)}
                chunks[str(number)] = {**arrays, **{name: torch.from_numpy(arrays[name]) for name in _LARGE}}
        note(None)
        return {"chunks": chunks, "tallies": tallies}

    def _encode_set(self, encoder: ChunkEncoder, rows: Sequence[SentRow], note: NoteRow) -> tuple[EncodedChunk, Tally]:
        raw = [self._parse(row) for row in rows]
        attempt = Attempt()
        with attempt:
            encoded: tuple[EncodedChunk, Tally] = encoder(RawChunk(0, raw))
            return encoded
        if attempt.failure is not None and not attempt.failure.is_final:  # one by one, to know which row it is
            for row, one in zip(rows, raw, strict=True):
                note(row.row_id)
                encoder(RawChunk(0, [one]))
        return encoder(RawChunk(0, raw))  # raises what it raised before

    def _parse(self, row: SentRow) -> RawRow:
        file = self._files[row.file_number]
        if not isinstance(row.values, bytes):
            return RawRow(row.place, file, row.values, row.problem)
        parsed = parse_row(file, row.values)
        return (
            RawRow(row.place, file, {}, parsed.what)
            if isinstance(parsed, MalformedRow)
            else RawRow(row.place, file, parsed)
        )


def build_examples(encoded: Mapping[str, Any], rows: RawPiece) -> list[Example]:
    """Return the examples of an encoded piece in the order of its rows."""
    by_row: dict[int, list[Example]] = {}
    for number, arrays in encoded["chunks"].items():
        own = [at for at, row in enumerate(rows) if row.set_number == int(number)]
        chunk = EncodedChunk(**{**arrays, **{name: arrays[name].numpy() for name in _LARGE}})
        views = ChunkViews(chunk, 0)
        for at in range(len(chunk)):
            example = views.example(at)
            place = own[example["row_id"]]
            example["row_id"] = rows[place].row_id
            by_row.setdefault(place, []).append(example)
    return [example for place in sorted(by_row) for example in by_row[place]]


class TakePiece(Protocol):
    """Gives what was made of a piece; positions are asked for in order."""

    def __call__(self, position: int) -> Mapping[str, Any]:
        """Return the encoded piece at a position."""
        ...


OpenPieces = Callable[[PieceQueue], TakePiece]
"""Begins to have the pieces of a queue encoded, from position 0 on."""


def encode_here(encoder: PieceEncoder) -> OpenPieces:
    """Return what has pieces encoded by this process, each when it is asked for."""

    def open_pieces(queue: PieceQueue) -> TakePiece:
        def take(position: int) -> Mapping[str, Any]:
            piece = queue[position]
            if isinstance(piece, Failure):
                assert queue.error is not None, "a failure is made of an error"
                raise queue.error
            return encoder.encode(piece)

        return take

    return open_pieces


def _forget(row_id: int | None) -> None:
    """Take note of nothing."""
