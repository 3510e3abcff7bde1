"""A shard from any place on: raw rows, each with its place and the place to go on at."""

import csv
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tunesmith.data.sources.columnar import rows_of_batch
from tunesmith.data.sources.compression import damage_errors, find_file_type
from tunesmith.data.sources.json_rows import WINDOW_CHARACTERS, ArrayReader, check_object, parse_line
from tunesmith.data.sources.problems import MalformedRow
from tunesmith.data.sources.rows import read_file
from tunesmith.data.sources.text_rows import Row, build_row, check_column_names, parse_text, read_header
from tunesmith.data.streaming.shards import Shard, Unit, group_borders
from tunesmith.errors import DataError

_BOM = b"\xef\xbb\xbf"


class PlacedRow(NamedTuple):
    """A raw row and where it stands in its file, in the unit of its shard."""

    place: int
    values: Any
    """By column; of a text file that is not to be parsed here the line, see `parse_row`."""

    next_place: int
    """Where the row after it begins, or where nothing is left."""

    number: int
    """How many rows of the shard, of all shares, come before the next one."""

    problem: str | None = None
    """What is wrong with a row that is malformed in its file, in words; it has no values."""


class Position(NamedTuple):
    """Where to go on in a shard."""

    place: int
    number: int = 0
    """Rows of the shard before it, of all shares."""


def read_shard(shard: Shard, position: Position | None = None, *, parses: bool = True) -> Iterator[PlacedRow]:
    """Yield the rows of a shard, from its start or from a position that an earlier row gave.

    Args:
        shard: What to read.
        position: Where to begin.
        parses: Parse the lines of text files, which takes longer than reading them. Otherwise `parse_row` has to.

    Raises:
        DataError: The file cannot be read; the message says where.
    """
    position = position or Position(shard.start)
    read = _read_lines if shard.unit == "lines" and not parses else _READERS[shard.unit]
    rows = _guarded(shard, position.place, read(shard, position.place))
    for number, (place, values, next_place) in enumerate(rows, start=position.number):
        if number % shard.num_shares == shard.share:
            if isinstance(values, MalformedRow):
                yield PlacedRow(place, {}, next_place, number + 1, values.what)
            else:
                yield PlacedRow(place, values, next_place, number + 1)


def parse_row(path: Path, line: bytes) -> Row:
    """Return the values of a line of a text file, or what is wrong with it."""
    parse = parse_text if find_file_type(path) == ".txt" else parse_line
    return parse(line.decode("utf-8", "surrogateescape"))


def describe_place(path: Path, unit: Unit, place: int) -> str:
    """Return a place in words. For a text file its lines are counted, which reads it up to there.

    Example:
        `row 17` (counted from 1; of text, blank lines count too: `line 17`).
    """
    if unit in ("groups", "rows"):
        return f"row {place + 1:,}"
    lines, left = 1, place
    with path.open("rb") as file:
        while left and (block := file.read(min(left, 1 << 20))):
            lines += block.count(b"\n")
            left -= len(block)
        following = file.read(4096)  # in an array, the place is behind the comma before the row
        lines += following[: len(following) - len(following.lstrip())].count(b"\n")
    return f"line {lines:,}"


_Raw = Iterator[tuple[int, Row | bytes, int]]
"""Place, row or line, and the place behind it."""


def _read_parsed_lines(shard: Shard, place: int) -> _Raw:
    for start, line, after in _read_lines(shard, place):
        yield start, parse_row(shard.file, line), after


def _read_lines(shard: Shard, place: int) -> Iterator[tuple[int, bytes, int]]:
    with shard.file.open("rb") as file:
        _go_to_line(file, place)
        place = file.tell()
        for line in file:
            if shard.end is not None and place >= shard.end:
                return
            after = place + len(line)
            text = line.removeprefix(_BOM) if place == 0 else line
            if text.strip():
                yield place, text, after
            place = after


def _go_to_line(file: IO[bytes], place: int) -> None:
    """Move to the first line that begins at a place or after it: a line that a border cuts is of the part before."""
    if place:
        file.seek(place - 1)
        file.readline()


def _read_csv(shard: Shard, place: int) -> _Raw:
    csv.field_size_limit(sys.maxsize)
    with shard.file.open("rb") as file:
        counted = _CountedLines(file)
        reader = csv.reader(counted, strict=True)
        header = read_header(reader, shard.file)
        if place:
            counted.go_to(place)
        while True:
            start = counted.place
            try:
                fields = next(reader, None)
            except csv.Error as error:
                raise _malformed(shard, start, f"not valid CSV: {error}") from error
            if fields is None:
                return
            if not fields:
                continue
            yield start, build_row(header, fields), counted.place


class _CountedLines(Iterator[str]):
    """Lines of a file as text, and how many bytes were given out.

    The reader of the standard library takes no more lines than a record needs, so the count is where the next begins.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.place = 0

    def go_to(self, place: int) -> None:
        """Continue at a place where a record begins."""
        self._file.seek(place)
        self.place = place

    def __next__(self) -> str:
        line = self._file.readline()
        if not line:
            raise StopIteration
        text = line.removeprefix(_BOM) if self.place == 0 else line
        self.place += len(line)
        return text.decode("utf-8", "surrogateescape")


def _read_groups(shard: Shard, place: int) -> _Raw:
    read = _parquet_batches if find_file_type(shard.file) == ".parquet" else _arrow_batches
    borders = group_borders(shard.file)
    end = borders[-1] if shard.end is None else shard.end
    if place >= end:
        return
    group = bisect_right(borders, place) - 1
    number = borders[group]
    for batch in read(shard.file, group):
        if number + batch.num_rows > place:  # rows before the place are not turned into values of Python
            first = max(0, place - number)
            for row, values in enumerate(rows_of_batch(batch.slice(first)), start=number + first):
                if row >= end:
                    return
                yield row, values, row + 1
        number += batch.num_rows
        if number >= end:
            return


def _parquet_batches(path: Path, first_group: int) -> Iterator[Any]:
    with path.open("rb") as source, pq.ParquetFile(source) as file:
        check_column_names(file.schema_arrow.names, path)
        yield from file.iter_batches(batch_size=1000, row_groups=range(first_group, file.num_row_groups))


def _arrow_batches(path: Path, first_group: int) -> Iterator[Any]:
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        check_column_names(reader.schema.names, path)
        for number in range(first_group, reader.num_record_batches):
            batch = reader.get_batch(number)
            batch.validate(full=True)  # the memory is mapped as it is: damaged offsets would point anywhere
            yield batch


def _read_array(shard: Shard, place: int) -> _Raw:
    with shard.file.open("rb") as file:
        start = place or len(_BOM) * (file.read(len(_BOM)) == _BOM)
        file.seek(start)
        reader = ArrayReader(shard.file, TextIOWrapper(file, encoding="utf-8", newline=""), WINDOW_CHARACTERS)
        for value in reader.go_on(place) if place else reader.values():
            after = start + reader.count_bytes()
            yield place, check_object(value), after
            place = after


def _read_counted(shard: Shard, place: int) -> _Raw:
    for row in islice(read_file(shard.file), place, None):
        yield row.row, row.values if row.problem is None else MalformedRow(row.problem), row.row + 1


_READERS: Mapping[Unit, Callable[[Shard, int], _Raw]] = {
    "lines": _read_parsed_lines,
    "groups": _read_groups,
    "csv": _read_csv,
    "array": _read_array,
    "rows": _read_counted,
}


def _guarded(shard: Shard, start: int, rows: _Raw) -> _Raw:
    place = start
    try:
        for row in rows:
            place = row[2]
            yield row
    except UnicodeDecodeError as error:
        where = describe_place(shard.file, shard.unit, place)
        raise DataError(
            f"{shard.file}: {where} or after it: not UTF-8 text: {error.reason}. Save it as UTF-8."
        ) from error
    except pa.ArrowException as error:
        where = describe_place(shard.file, shard.unit, place)
        raise DataError(f"{shard.file}: {where} or after it: not a readable file: {error}") from error
    except damage_errors(shard.file) as error:  # so that its lines cannot be counted
        unit = "row" if shard.unit == "groups" else "byte"
        raise DataError(f"{shard.file} cannot be read after {unit} {place:,}: {error}") from error


def _malformed(shard: Shard, place: int, message: str) -> DataError:
    return DataError(f"{shard.file}: {describe_place(shard.file, shard.unit, place)}: {message}.")
