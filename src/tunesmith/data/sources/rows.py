"""Rows of files, one after the other.

Values stay what they are in the file. Nothing is inferred across rows: a column may hold text in one row and a list
in the next, and `007` in a CSV file stays `007`.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from tunesmith.data.sources.columnar import read_arrow, read_parquet
from tunesmith.data.sources.compression import damage_errors, find_file_type
from tunesmith.data.sources.dataset_spec import DatasetSpec
from tunesmith.data.sources.json_rows import read_json
from tunesmith.data.sources.problems import MalformedRow
from tunesmith.data.sources.text_rows import read_csv, read_text
from tunesmith.errors import DataError

Values = dict[str, Any]

_MOST_MALFORMED = 1000
"""Malformed rows at the start of a data set from which it is none."""


class RawRow(NamedTuple):
    """One row as it stands in its file."""

    row: int
    """Place in the file, from 0; blank lines do not count."""

    file: Path
    values: Values
    problem: str | None = None
    """What is wrong with a row that is malformed in its file, in words; it has no values."""


def read_rows(spec: DatasetSpec, chunk_rows: int = 1000) -> Iterator[list[RawRow]]:
    """Yield the rows of a data set in order, in lists of at most `chunk_rows`.

    Raises:
        DataError: A file cannot be read.
    """
    rows = chain.from_iterable(read_file(path) for path in spec.files)
    last_row = None if spec.last_row is None else min(spec.last_row, sys.maxsize)
    selected = islice(rows, min(spec.first_row, sys.maxsize), last_row)
    while chunk := list(islice(selected, chunk_rows)):
        yield chunk


def peek_rows(files: Sequence[Path], num_rows: int = 1) -> list[RawRow]:
    """Return the first rows of a data set that are not malformed, fewer where it has no more.

    Raises:
        DataError: A file cannot be read, or all of the first rows are malformed.
    """
    found, malformed = list[RawRow](), list[RawRow]()
    for row in chain.from_iterable(map(read_file, files)):
        (found if row.problem is None else malformed).append(row)
        if len(found) == num_rows or (len(malformed) == _MOST_MALFORMED and not found):
            break
    if malformed and not found:
        shown = "".join(f"\n  {row.file.name} row {row.row + 1}: {row.problem}" for row in malformed[:3])
        raise DataError(f"{malformed[0].file}: none of its first {len(malformed):,} rows can be read:{shown}")
    return found


def count_rows(path: Path) -> int:
    """Return the number of rows of a file; Parquet says it, the others are read."""
    if find_file_type(path) == ".parquet":
        with path.open("rb") as file:
            return int(pq.read_metadata(file).num_rows)
    return sum(1 for _ in read_file(path))


def read_file(path: Path) -> Iterator[RawRow]:
    """Yield the rows of one file in order.

    Raises:
        DataError: The file cannot be read; the message names it and the row that was to come.
    """
    number = -1
    try:
        for number, value in enumerate(_READERS[find_file_type(path)](path)):
            if isinstance(value, MalformedRow):
                yield RawRow(number, path, {}, value.what)
            else:
                yield RawRow(number, path, value)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not UTF-8 text near row {number + 2}: {error.reason} ({error.object[error.start]:#04x}). "
            "Save it as UTF-8."
        ) from error
    except damage_errors(path) as error:  # no permission, a failing disk or network, damaged or unfinished files
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise DataError(f"{path} cannot be read at row {number + 2}: {reason}") from error


_READERS: Mapping[str, Callable[[Path], Iterator[Values | MalformedRow]]] = {
    ".json": read_json,
    ".jsonl": read_json,
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".txt": read_text,
}
