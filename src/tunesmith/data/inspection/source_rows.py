"""Raw rows of prepared data sets: read again from their files, for a person to compare."""

import random
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tunesmith.config import RunConfig
from tunesmith.data.preparation import Preparation, select_run_chunks
from tunesmith.data.prepared import PreparedData, PreparedSet
from tunesmith.data.selection import RawChunk
from tunesmith.data.streaming.cursors import Position, describe_place, read_shard
from tunesmith.data.streaming.shards import Shard
from tunesmith.data.streaming.source import StreamSource
from tunesmith.errors import DataError


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row as it was read."""

    row_id: int
    """Number over all data sets of the run, from 0, as in `row_id` of an example."""

    data_set: str
    file: str
    place: str
    """Place in the file, in words."""

    values: Mapping[str, Any]
    dropped: str | None = None
    """Why no example was made of it; `None` for a row that is used."""


def choose_rows(data: PreparedData, *, row: int | None = None, count: int | None = None, seed: int = 0) -> list[int]:
    """Return the row ids to look at: a given row, some at random, or the first one that is used.

    Args:
        data: Of the run.
        row: A row over all data sets in their order, counted from 1; it may have been dropped.
        count: Draw so many of the rows that are used.
        seed: Start of the random numbers of the draw.

    Raises:
        DataError: There is no such row.
    """
    total = sum(item.tally.read for item in data.sets)
    if row is not None:
        if not 1 <= row <= total:
            raise DataError(f"--row is {row}, but {total:,} rows were read; give a number from 1 to {total}.")
        return [row - 1]
    used = sorted({int(number) + item.first_row_id for item in data.sets for number in item.rows.source_rows})
    return used[:1] if count is None else sorted(random.Random(seed).sample(used, min(count, len(used))))  # noqa: S311


def read_source_rows(
    data: PreparedData, row_ids: Iterable[int], config: RunConfig, preparation: Preparation
) -> dict[int, SourceRow]:
    """Read rows again by their id. A row that was dropped is encoded once more, to hear why.

    Files are read up to the last of the rows and no further.
    """
    wanted: dict[int, set[int]] = {}
    for row_id in row_ids:
        wanted.setdefault(_set_number(data, row_id), set()).add(row_id)
    found: dict[int, SourceRow] = {}
    for number, ids in wanted.items():
        if not all(file.is_file() for file in data.sets[number].spec.files):
            continue  # prepared elsewhere
        found.update(_read_rows_of(data.sets[number], ids, config, preparation))
    return found


def read_streamed_row(stream: StreamSource, row_id: int) -> SourceRow:
    """Read a row of a stream again."""
    spec, file, unit, place = stream.find_row(row_id)
    row = next(read_shard(Shard(file, 0, unit), Position(place)))
    return SourceRow(row_id, spec.name, str(file), describe_place(file, unit, place), row.values)


def _read_rows_of(
    item: PreparedSet, row_ids: set[int], config: RunConfig, preparation: Preparation
) -> dict[int, SourceRow]:
    found: dict[int, SourceRow] = {}
    missing = {row_id - item.first_row_id for row_id in row_ids}
    for chunk in select_run_chunks(config, item.spec):
        for number in sorted(missing & set(range(chunk.first_row, chunk.first_row + len(chunk.rows)))):
            raw = chunk.rows[number - chunk.first_row]
            found[number + item.first_row_id] = SourceRow(
                row_id=number + item.first_row_id,
                data_set=item.spec.name,
                file=str(raw.file),
                place=f"row {raw.row + 1:,}",
                values=raw.values,
                dropped=None if item.rows.find_place(number) else _why_dropped(item, chunk, number, preparation),
            )
            missing.discard(number)
        if not missing:
            break
    return found


def _why_dropped(item: PreparedSet, chunk: RawChunk, number: int, preparation: Preparation) -> str:
    alone = RawChunk(number, [chunk.rows[number - chunk.first_row]])
    _, tally = preparation.chunk_encoder(item.spec)(alone)
    reason = next(iter(tally.dropped))
    return f"{reason} ({'; '.join(tally.shown[reason])})"


def _set_number(data: PreparedData, row_id: int) -> int:
    return bisect_right([item.first_row_id for item in data.sets], row_id) - 1
