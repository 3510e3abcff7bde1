"""Files cut into parts that can be read apart from each other, without reading them first.

Text with one row on each line is cut anywhere and read from the next line on; Parquet and Arrow files are cut between
their groups of rows. Other files (CSV, JSON arrays, compressed ones) stay whole. Where there are fewer parts than
processes, several read the same part and each takes its share of the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from tunesmith.data.sources import DatasetSpec
from tunesmith.data.sources.compression import check_is_text, find_file_type, is_compressed
from tunesmith.data.sources.json_rows import holds_array
from tunesmith.errors import DataError

Unit = Literal["lines", "groups", "csv", "array", "rows"]
"""How the places of a shard count.

Bytes at the start of a line, rows of a columnar file, bytes at the start of a CSV record or of an element of a JSON
array, or rows that can only be reached by reading those before."""

_OF_TEXT = (".json", ".jsonl", ".csv", ".txt")
_LEAST_BYTES = 1 << 16
_MOST_BYTES = 64 << 20
"""A part of a text file is larger than the first, and smaller than the second."""

_FEW_GROUPS = 64
"""Parts that a columnar file is cut into where it has so many groups: they can be put in another order."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of a file, or a share of the rows of a part."""

    file: Path
    file_number: int
    """Number of the file among all files of all data sets of the run."""

    unit: Unit
    start: int = 0
    end: int | None = None
    """Half-open range in the unit; to the end of the file when `None`."""

    num_bytes: float = 1.0
    """About how much of the file this is, for proportions."""

    share: int = 0
    num_shares: int = 1
    """Of the rows in the range, number `share`, `share + num_shares` ... are read."""

    def left_from(self, place: int) -> float:
        """Return about how many bytes are left at a place; all of them where only reading would tell."""
        if self.end is None or self.end <= self.start:
            return self.num_bytes
        return self.num_bytes * max(0.0, (self.end - place) / (self.end - self.start))


def cut_shards(spec: DatasetSpec, first_file_number: int, num_processes: int) -> list[Shard]:
    """Cut a data set into at least as many shards as there are processes; together they hold every row once.

    Args:
        spec: The data set.
        first_file_number: Number of its first file among all files of the run.
        num_processes: Processes that read.

    Raises:
        DataError: A file cannot be read, or the data set takes a part of its rows that only counting would find.
    """
    _check_whole(spec)
    wanted = -(-num_processes // len(spec.files))
    shards = [
        shard
        for number, file in enumerate(spec.files, start=first_file_number)
        for shard in _cut_file(file, number, wanted)
    ]
    if len(shards) >= num_processes:
        return shards
    num_shares = -(-num_processes // len(shards))
    return [
        replace(shard, share=share, num_shares=num_shares, num_bytes=shard.num_bytes / num_shares)
        for share in range(num_shares)
        for shard in shards
    ]


def deal(shards: Sequence[Shard], process: int, num_processes: int) -> list[Shard]:
    """Return the shards of one process: disjoint from those of all others, and together all of them."""
    return list(shards[process::num_processes])


def find_unit(path: Path) -> Unit:
    """Return how the places in a file are counted."""
    return _find_unit(path, find_stamp(path))


@lru_cache(maxsize=4096)
def _find_unit(path: Path, stamp: object) -> Unit:
    del stamp  # a file that was written anew is looked at anew
    kind = find_file_type(path)
    if is_compressed(path):
        return "rows"
    if kind in _OF_TEXT:
        return _find_unit_of_text(path, kind)
    if kind == ".parquet" or (kind == ".arrow" and isinstance(path, Path) and _arrow_groups(path) is not None):
        return "groups"
    return "rows"


def _find_unit_of_text(path: Path, kind: str) -> Unit:
    try:
        with path.open("rb") as file:
            check_is_text(path, file)
        if kind == ".csv":
            return "csv"
        return "array" if kind != ".txt" and holds_array(path) else "lines"
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def group_borders(path: Path) -> tuple[int, ...]:
    """Return the first row of each group of a columnar file, and the number of all its rows.

    Raises:
        DataError: The file is damaged.
    """
    return _group_borders(path, find_stamp(path))


def find_stamp(path: Path) -> tuple[int, int] | None:
    """Return size and time of a file on this disk; nothing where asking would take the network."""
    if not isinstance(path, Path) or not path.is_file():
        return None
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=4096)
def _group_borders(path: Path, stamp: object) -> tuple[int, ...]:
    del stamp
    try:
        if find_file_type(path) == ".parquet":
            with path.open("rb") as file:
                metadata = pq.read_metadata(file)
            sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        else:
            sizes = _arrow_groups(path) or []
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable file: {error}") from error
    borders = [0]
    for size in sizes:
        borders.append(borders[-1] + size)
    return tuple(borders)


def _cut_file(file: Path, number: int, wanted: int) -> list[Shard]:
    unit, size = find_unit(file), file.stat().st_size
    if unit == "lines":
        count = max(min(wanted, size // _LEAST_BYTES), -(-size // _MOST_BYTES), 1)
        borders = [size * part // count for part in range(count + 1)]
    elif unit == "groups":
        groups = group_borders(file)
        count = max(1, min(len(groups) - 1, max(wanted, _FEW_GROUPS)))
        borders = [groups[(len(groups) - 1) * part // count] for part in range(count + 1)]
    else:
        borders = [0, size] if unit in ("csv", "array") else []
    if not borders:
        return [Shard(file, number, unit, num_bytes=size)]
    return [
        Shard(file, number, unit, start, end, num_bytes=size * (end - start) / max(1, borders[-1]))
        for start, end in pairwise(borders)
    ]


def _check_whole(spec: DatasetSpec) -> None:
    problems = [f"num_samples: {spec.num_samples}"] if spec.num_samples is not None else []
    if spec.first_row or spec.last_row is not None:
        problems.append("a range of rows in split")
    if problems:
        raise DataError(
            f"data set {spec.name!r} has {' and '.join(problems)}, and with streaming nobody counts its rows. Leave "
            "that out (max_steps decides how much is read), or set streaming: false."
        )


def _arrow_groups(path: Path) -> list[int] | None:
    """Return the rows of each record batch of an Arrow file; nothing for a stream, whose batches have no index."""
    try:
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            return [reader.get_batch(number).num_rows for number in range(reader.num_record_batches)]
    except (pa.ArrowInvalid, OSError):  # also of a damaged file, which whoever reads it names
        return None
