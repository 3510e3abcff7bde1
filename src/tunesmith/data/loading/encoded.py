"""Encoded rows: many in a few flat arrays, written to and memory-mapped from Arrow IPC files.

A row is never a Python list of ids: it is a slice of one long array, from the encoder to the file to the batch.
"""

import json
import os
import zlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_SCHEMA = pa.schema(
    [
        pa.field("input_ids", pa.large_list(pa.field("item", pa.int32(), nullable=False)), nullable=False),
        pa.field("trained_spans", pa.large_list(pa.field("item", pa.int32(), nullable=False)), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("file", pa.int32(), nullable=False),
        pa.field("file_row", pa.int64(), nullable=False),
        pa.field("prompt_end", pa.int32(), nullable=False),
        pa.field("chosen_end", pa.int32(), nullable=False),
        pa.field("signal", pa.float64(), nullable=False),
    ]
)


HELD_BYTES = 64 * 2**20
"""Files up to this size are copied into memory when they are opened."""


class DamagedFileError(Exception):
    """A file of encoded rows is not whole; its message says what is wrong. Handled by writing the file again."""


@dataclass(frozen=True, eq=False, slots=True)
class EncodedChunk:
    """Encoded rows side by side in flat arrays."""

    input_ids: NDArray[np.int32]
    """Ids of all rows end to end."""

    id_borders: NDArray[np.int64]
    """Row `i` has the ids `id_borders[i]` to `id_borders[i + 1]`. Shape [rows + 1]."""

    trained_spans: NDArray[np.int32]
    """Spans of all rows end to end, each row's counted from its own first token."""

    span_borders: NDArray[np.int64]
    row: NDArray[np.int64]
    """Number of the source row in its data set, in the order of reading. Ascending, not always unique. Shape [rows]."""

    file: NDArray[np.int32]
    """Number of the source file among the files of the data set. Shape [rows]."""

    file_row: NDArray[np.int64]
    """Number of the source row in that file. Shape [rows]."""

    prompt_end: NDArray[np.int32]
    """Tokens before the first completion, 0 in rows without completions, see `PairExample`. Shape [rows]."""

    chosen_end: NDArray[np.int32]
    """Where the first completion ends. Shape [rows]."""

    signal: NDArray[np.float64]
    """What is known of a row with completions. Shape [rows]."""

    def __len__(self) -> int:
        return len(self.row)


class Place(NamedTuple):
    """Where a source row stands."""

    row: int
    file: int
    file_row: int


class Completions(NamedTuple):
    """Where the completions of a row stand and what is known of it, see `PairExample`; nothing for other rows."""

    prompt_end: int = 0
    chosen_end: int = 0
    signal: float = 0.0


def build_chunk(
    ids: Sequence[NDArray[np.int32]],
    spans: Sequence[NDArray[np.int32]],
    places: Sequence[Place],
    completions: Sequence[Completions] | None = None,
) -> EncodedChunk:
    """Lay encoded rows end to end.

    Args:
        ids: Ids of each row.
        spans: Learnt spans of each row.
        places: Where each row comes from.
        completions: Of each row, for rows that have some.
    """
    table = np.asarray(places, dtype=np.int64).reshape(len(places), 3)
    ends = np.asarray(completions or [Completions()] * len(places), dtype=np.float64).reshape(len(places), 3)
    return EncodedChunk(
        input_ids=_joined(ids),
        id_borders=_borders(ids),
        trained_spans=_joined(spans),
        span_borders=_borders(spans),
        row=np.ascontiguousarray(table[:, 0]),
        file=table[:, 1].astype(np.int32),
        file_row=np.ascontiguousarray(table[:, 2]),
        prompt_end=ends[:, 0].astype(np.int32),
        chosen_end=ends[:, 1].astype(np.int32),
        signal=np.ascontiguousarray(ends[:, 2]),
    )


def join_chunks(chunks: Sequence[EncodedChunk]) -> EncodedChunk:
    """Copy chunks into one whose arrays lie in memory of their own."""

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(chunk, name) for chunk in chunks])

    def borders(name: str) -> NDArray[np.int64]:
        sizes = [np.diff(getattr(chunk, name)) for chunk in chunks]
        return np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64)

    is_border = {"id_borders", "span_borders"}
    names = [field.name for field in fields(EncodedChunk)]
    arrays: dict[str, Any] = {name: borders(name) if name in is_border else joined(name) for name in names}
    for array in arrays.values():
        array.setflags(write=False)  # as the mapped ones are
    return EncodedChunk(**arrays)


class EncodedRowsWriter:
    """Writes chunks to an Arrow IPC file; the file is whole once `finish` has been called."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._writer = pa.ipc.new_file(self._file, _SCHEMA)

    def write(self, chunk: EncodedChunk) -> None:
        """Append the rows of a chunk."""
        if not len(chunk):
            return
        batch = pa.RecordBatch.from_arrays(
            [
                pa.LargeListArray.from_arrays(chunk.id_borders, chunk.input_ids, type=_SCHEMA.field(0).type),
                pa.LargeListArray.from_arrays(chunk.span_borders, chunk.trained_spans, type=_SCHEMA.field(1).type),
                pa.array(chunk.row),
                pa.array(chunk.file),
                pa.array(chunk.file_row),
                pa.array(chunk.prompt_end),
                pa.array(chunk.chosen_end),
                pa.array(chunk.signal),
            ],
            schema=_SCHEMA,
        )
        self._writer.write_batch(batch, custom_metadata={"checksum": str(_checksum(chunk))})

    def finish(self, metadata: Mapping[str, Any]) -> None:
        """Write what is known about all rows, as JSON, and close the file."""
        empty = pa.RecordBatch.from_arrays([pa.array([], type=field.type) for field in _SCHEMA], schema=_SCHEMA)
        self._writer.write_batch(empty, custom_metadata={"metadata": json.dumps(metadata, ensure_ascii=False)})
        self._writer.close()
        self._file.flush()

    def sync(self) -> None:
        """Wait until the file is on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file as it is. Without `finish` before, it cannot be read."""
        self._file.close()


class EncodedRows:
    """Rows of one file, memory-mapped: opening takes the time to check them, and memory is shared by all processes.

    A small file is held in memory as a whole: no row of it can wait for a disk or a network any more.

    Args:
        path: File that `EncodedRowsWriter` has finished.

    Raises:
        DamagedFileError: The file is cut short, was changed, or is something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chunks, self.metadata = _read_chunks(path)
        if self.chunks and path.stat().st_size <= HELD_BYTES:
            self.chunks = [join_chunks(self.chunks)]
        self._starts = np.cumsum([0, *(len(chunk) for chunk in self.chunks)]).tolist()

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return EncodedRows, (self.path,)  # other processes map the file themselves

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each row. Shape [rows]."""
        return _concatenated([np.diff(chunk.id_borders) for chunk in self.chunks])

    @property
    def trained_tokens(self) -> NDArray[np.int64]:
        """Tokens of each row that are the target of a prediction: the first of a row never is. Shape [rows]."""
        return _concatenated([_count_trained(chunk) for chunk in self.chunks])

    @property
    def source_rows(self) -> NDArray[np.int64]:
        """Number of the source row of each row, see `EncodedChunk.row`. Shape [rows]."""
        return _concatenated([chunk.row for chunk in self.chunks])

    @property
    def chosen_ends(self) -> NDArray[np.int64]:
        """End of the first completion of each row, counted from the row's first token. Shape [rows]."""
        return _concatenated([chunk.chosen_end.astype(np.int64) for chunk in self.chunks])

    @property
    def prompt_ends(self) -> NDArray[np.int64]:
        """Tokens of each row before its completions, 0 where it has none. Shape [rows]."""
        return _concatenated([chunk.prompt_end.astype(np.int64) for chunk in self.chunks])

    @property
    def signals(self) -> NDArray[np.float64]:
        """What is known of each row with completions, see `PairExample.signal`. Shape [rows]."""
        return np.concatenate([np.zeros(0), *(chunk.signal for chunk in self.chunks)])

    def find_place(self, row: int) -> Place | None:
        """Return the place of a source row, or `None` where nothing was encoded from it."""
        first_rows = [int(chunk.row[0]) for chunk in self.chunks]
        number = bisect_right(first_rows, row) - 1
        if number < 0:
            return None
        chunk = self.chunks[number]
        at = int(np.searchsorted(chunk.row, row))
        if at == len(chunk) or chunk.row[at] != row:
            return None
        return Place(row, int(chunk.file[at]), int(chunk.file_row[at]))


def _read_chunks(path: Path) -> tuple[list[EncodedChunk], dict[str, Any]]:
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        if reader.schema != _SCHEMA:
            raise DamagedFileError("it has other columns")
        batches = [reader.get_batch_with_custom_metadata(number) for number in range(reader.num_record_batches)]
    except (pa.ArrowException, OSError) as error:
        raise DamagedFileError(str(error)) from error
    if not batches or not batches[-1][1] or b"metadata" not in batches[-1][1]:
        raise DamagedFileError("its end is missing")
    chunks = []
    for number, (batch, metadata) in enumerate(batches[:-1]):
        chunk = _chunk_of_batch(batch)
        if not metadata or metadata.get(b"checksum") != str(_checksum(chunk)).encode():
            raise DamagedFileError(
                f"part {number + 1} of {len(batches) - 1} has another checksum than when it was written"
            )
        chunks.append(chunk)
    return chunks, json.loads(batches[-1][1][b"metadata"])


def _chunk_of_batch(batch: Any) -> EncodedChunk:
    ids, spans, *numbers = batch.columns
    row, file, file_row, prompt_end, chosen_end, signal = (column.to_numpy(zero_copy_only=True) for column in numbers)
    return EncodedChunk(
        input_ids=ids.values.to_numpy(zero_copy_only=True),
        id_borders=ids.offsets.to_numpy(zero_copy_only=True),
        trained_spans=spans.values.to_numpy(zero_copy_only=True),
        span_borders=spans.offsets.to_numpy(zero_copy_only=True),
        row=row,
        file=file,
        file_row=file_row,
        prompt_end=prompt_end,
        chosen_end=chosen_end,
        signal=signal,
    )


def _checksum(chunk: EncodedChunk) -> int:
    numbers = (chunk.row, chunk.file, chunk.file_row, chunk.prompt_end, chunk.chosen_end, chunk.signal)
    arrays = (chunk.input_ids, chunk.id_borders, chunk.trained_spans, chunk.span_borders, *numbers)
    value = 0
    for view in (array.data for array in arrays):
        value = zlib.crc32(view, value)
    return value


def _count_trained(chunk: EncodedChunk) -> NDArray[np.int64]:
    starts, ends = chunk.trained_spans[::2], chunk.trained_spans[1::2]
    totals = np.zeros(len(starts) + 1, dtype=np.int64)
    np.cumsum(np.maximum(ends - np.maximum(starts, 1), 0), out=totals[1:])
    return np.diff(totals[chunk.span_borders // 2])


def _joined(arrays: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    if not arrays:
        return np.zeros(0, dtype=np.int32)
    return np.concatenate(arrays, dtype=np.int32, casting="same_kind")


def _borders(arrays: Sequence[NDArray[np.int32]]) -> NDArray[np.int64]:
    borders = np.zeros(len(arrays) + 1, dtype=np.int64)
    np.cumsum([len(array) for array in arrays], out=borders[1:])
    return borders


def _concatenated(arrays: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)
