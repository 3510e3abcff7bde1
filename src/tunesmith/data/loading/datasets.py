"""Encoded rows as map-style data sets: one row at a time, or several packed rows at once.

A row is two slices of memory-mapped arrays; nothing is copied or converted before the collator. One core serves
several hundred thousand rows a second, so that text needs no worker processes.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from tunesmith.data.batches import Example, PairExample
from tunesmith.data.loading.encoded import EncodedChunk, EncodedRows
from tunesmith.data.packing import Packs


@runtime_checkable
class RowsAtOnce(Protocol):
    """A data set that can be asked for several rows in one call, as PyTorch's loader does."""

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return several rows."""
        ...


class Part(NamedTuple):
    """The rows of one data set among those of a run."""

    rows: EncodedRows
    first_row_id: int
    """`row_id` of the data set's first source row."""


class ExampleDataset(Dataset[Example]):
    """Rows of one or more data sets, one after the other, or some of them in a given order.

    Args:
        parts: Data sets in order.
        indices: Rows to show, counted over all parts; all of them when not given. Shape [rows].
    """

    def __init__(self, parts: Sequence[Part], indices: NDArray[np.int64] | None = None) -> None:
        self.parts = tuple(parts)
        self.indices = indices
        self._chunks = [ChunkViews(chunk, part.first_row_id) for part in parts for chunk in part.rows.chunks]
        starts = np.cumsum([0, *(chunk.num_rows for chunk in self._chunks)]).tolist()
        self._starts: list[int] = starts[:-1]
        self._len: int = starts[-1] if indices is None else len(indices)
        self._places = None if indices is None else np.ascontiguousarray(indices, dtype=np.int64).data

    def __len__(self) -> int:
        return self._len

    def __getitem__(self, index: int) -> Example:
        if index < 0:
            index += self._len
        if not 0 <= index < self._len:
            raise IndexError(f"row {index} of {self._len}")
        place = index if self._places is None else self._places[index]
        number = bisect_right(self._starts, place) - 1
        return self._chunks[number].example(place - self._starts[number])

    def __getitems__(self, indices: Sequence[int]) -> list[Example]:
        """Return several rows; PyTorch's loader asks for a whole batch this way."""
        size, places, chunks, starts = self._len, self._places, self._chunks, self._starts
        rows = []
        for index in indices:
            if not 0 <= index < size:
                rows.append(self[index])
                continue
            place = index if places is None else places[index]
            number = bisect_right(starts, place) - 1
            rows.append(chunks[number].example(place - starts[number]))
        return rows

    def __reduce__(self) -> tuple[Any, ...]:
        return ExampleDataset, (self.parts, self.indices)  # views of mapped memory do not travel

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each row. Shape [rows]."""
        return self._over_rows([part.rows.lengths for part in self.parts])

    @property
    def prompt_ends(self) -> NDArray[np.int64]:
        """Tokens of each row before its completions, 0 where it has none. Shape [rows]."""
        return self._over_rows([part.rows.prompt_ends for part in self.parts])

    @property
    def chosen_ends(self) -> NDArray[np.int64]:
        """Where the first completion of each row ends, 0 where it has none. Shape [rows]."""
        return self._over_rows([part.rows.chosen_ends for part in self.parts])

    @property
    def signals(self) -> NDArray[np.float64]:
        """What is known of each row with completions, see `PairExample.signal`. Shape [rows]."""
        joined = np.concatenate([np.zeros(0), *(part.rows.signals for part in self.parts)])
        return joined if self.indices is None else joined[self.indices]

    @property
    def trained_tokens(self) -> NDArray[np.int64]:
        """Targets in each row. Shape [rows]."""
        return self._over_rows([part.rows.trained_tokens for part in self.parts])

    @property
    def row_ids(self) -> NDArray[np.int64]:
        """Source row of each row, see `PreparedData.describe_row`. Shape [rows]."""
        return self._over_rows([part.rows.source_rows + part.first_row_id for part in self.parts])

    def select(self, indices: NDArray[np.int64]) -> "ExampleDataset":
        """Return a data set of some of these rows, in the order given."""
        return ExampleDataset(self.parts, indices if self.indices is None else self.indices[indices])

    def _over_rows(self, values: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        joined = np.concatenate(values) if values else np.zeros(0, dtype=np.int64)
        return joined if self.indices is None else joined[self.indices]


class PackedDataset(Dataset[list[Example]]):
    """Packs of rows or pieces of rows; each item is the list of the samples in one packed row.

    Args:
        examples: Rows that the packs refer to.
        packs: Which rows stand together, see `data.packing`. Rows with completions are whole, and a piece's end is the
            number of tokens that the row takes in its pack.
    """

    def __init__(self, examples: Dataset[Any], packs: Packs) -> None:
        self.examples = examples
        self.packs = packs

    def __len__(self) -> int:
        return len(self.packs)

    def __getitem__(self, index: int) -> list[Example]:
        return [cut_piece(self.examples[row], start, end) for row, start, end in self.packs[index]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each pack. Shape [packs]."""
        return self.packs.tokens


class ChunkViews:
    """Slices rows out of a chunk. Borders are read through memory views: twice as fast as numpy scalars."""

    __slots__ = (
        "chosen_ends",
        "first_row_id",
        "has_completions",
        "id_borders",
        "ids",
        "num_rows",
        "prompt_ends",
        "rows",
        "signals",
        "span_borders",
        "spans",
    )

    def __init__(self, chunk: EncodedChunk, first_row_id: int) -> None:
        self.ids = chunk.input_ids
        self.spans = chunk.trained_spans
        self.id_borders = chunk.id_borders.data
        self.span_borders = chunk.span_borders.data
        self.rows = chunk.row.data
        self.has_completions = bool(chunk.prompt_end.any())
        self.prompt_ends = chunk.prompt_end.data
        self.chosen_ends = chunk.chosen_end.data
        self.signals = chunk.signal.data
        self.num_rows = len(chunk)
        self.first_row_id = first_row_id

    def example(self, at: int) -> Example:
        """Return one row; its arrays are parts of the chunk's."""
        ids, spans = self.id_borders, self.span_borders
        row: Example = {
            "input_ids": self.ids[ids[at] : ids[at + 1]],
            "trained_spans": self.spans[spans[at] : spans[at + 1]],
            "row_id": self.rows[at] + self.first_row_id,
        }
        if not self.has_completions or not self.prompt_ends[at]:
            return row
        return PairExample(
            input_ids=row["input_ids"],
            trained_spans=row["trained_spans"],
            row_id=row["row_id"],
            prompt_end=self.prompt_ends[at],
            chosen_end=self.chosen_ends[at],
            signal=self.signals[at],
        )


def cut_piece(example: Example, start: int, end: int) -> Example:
    """Cut a piece out of a row; spans are counted from the first token of the piece."""
    ids = example["input_ids"]
    if (start == 0 and end == len(ids)) or "prompt_end" in example:  # completions are never cut apart
        return example
    spans = np.clip(example["trained_spans"].reshape(-1, 2) - start, 0, end - start)
    return {
        "input_ids": ids[start:end],
        "trained_spans": np.ascontiguousarray(spans[spans[:, 0] < spans[:, 1]].reshape(-1), dtype=np.int32),
        "row_id": example["row_id"],
    }
