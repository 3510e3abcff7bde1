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
from tunesmith.data.sources.json_rows import read_json, read_json_lines
from tunesmith.data.sources.problems import FileProblems
from tunesmith.data.sources.text_rows import read_csv, read_text
from tunesmith.errors import DataError

Values = dict[str, Any]


class RawRow(NamedTuple):
    """One row as it stands in its file."""

    row: int
    """Place in the file, from 0; blank lines do not count."""

    file: Path
    values: Values


def read_rows(spec: DatasetSpec, chunk_rows: int = 1000) -> Iterator[list[RawRow]]:
    """Yield the rows of a data set in order, in lists of at most `chunk_rows`.

    Raises:
        DataError: A file cannot be read, or rows are malformed; the first three are named.
    """
    rows = chain.from_iterable(read_file(path) for path in spec.files)
    last_row = None if spec.last_row is None else min(spec.last_row, sys.maxsize)
    selected = islice(rows, min(spec.first_row, sys.maxsize), last_row)
    while chunk := list(islice(selected, chunk_rows)):
        yield chunk


def peek_rows(files: Sequence[Path], num_rows: int = 1) -> list[RawRow]:
    """Return the first rows of a data set, fewer where it has no more.

    Raises:
        DataError: A file cannot be read.
    """
    return list(islice(chain.from_iterable(map(read_file, files)), num_rows))


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
    problems = FileProblems(path)
    number = -1
    try:
        for number, value in enumerate(_READERS[find_file_type(path)](path, problems)):
            yield RawRow(number, path, value)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not UTF-8 text near row {number + 2}: {error.reason} ({error.object[error.start]:#04x}). "
            "Save it as UTF-8."
        ) from error
    except damage_errors(path) as error:  # no permission, a failing disk or network, damaged or unfinished files
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise DataError(f"{path} cannot be read at row {number + 2}: {reason}") from error
    problems.check()


_READERS: Mapping[str, Callable[[Path, FileProblems], Iterator[Values]]] = {
    ".json": read_json,
    ".jsonl": read_json_lines,
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".txt": read_text,
}
