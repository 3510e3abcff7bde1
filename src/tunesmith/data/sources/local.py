"""Rows of local files: JSON, JSON Lines, CSV, Parquet, Arrow and text.

Values stay what they are in the file. Nothing is inferred across rows: a column may hold text in one row and a list
in the next, and `007` in a CSV file stays `007`.
"""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tunesmith.data.sources.dataset_spec import DatasetSpec
from tunesmith.errors import DataError

Values = dict[str, Any]
CATALOG_FILE = "dataset_info.json"
"""The file of a folder that lists its data sets."""

_SHOWN_PROBLEMS = 3


class RawRow(NamedTuple):
    """One row as it stands in its file."""

    row: int
    """Place in the file, from 0; blank lines do not count."""

    file: Path
    values: Values


class _FileProblems:
    """Malformed rows of one file, collected so that the first few are shown together."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: list[str] = []

    def add(self, row: int, message: str) -> None:
        self.messages.append(f"row {row + 1}: {message}")
        if len(self.messages) == _SHOWN_PROBLEMS:
            self.check()

    def check(self) -> None:
        """Raise if there was any."""
        if self.messages:
            raise DataError(f"{self.path}: malformed rows. " + "; ".join(self.messages))


def find_files(path: Path, where: str) -> tuple[Path, ...]:
    """Return the data files of a file or folder, in the order of their names.

    Raises:
        DataError: There is none, one has an unknown type, or a folder mixes types.
    """
    if path.is_file():
        files = [path]
    elif path.is_dir():
        files = sorted(entry for entry in path.iterdir() if entry.is_file() and not _is_about_rows(entry.name))
        if not files:
            raise DataError(f"{where}: the folder {path} holds no files")
    else:
        raise DataError(f"{where}: {path} does not exist")
    suffixes = {file.suffix.lower() for file in files}
    unknown = suffixes - _READERS.keys()
    if unknown:
        raise DataError(
            f"{where}: {path} has files of type {', '.join(sorted(suffix or '(none)' for suffix in unknown))}; "
            f"known: {', '.join(sorted(_READERS))}"
        )
    if len(suffixes) > 1:
        raise DataError(
            f"{where}: the folder {path} mixes {', '.join(sorted(suffixes))}; it must hold one type of file"
        )
    return tuple(files)


def read_rows(spec: DatasetSpec, chunk_rows: int = 1000) -> Iterator[list[RawRow]]:
    """Yield the rows of a data set in order, in lists of at most `chunk_rows`.

    Raises:
        DataError: A file cannot be read, or rows are malformed; the first three are named.
    """
    rows = chain.from_iterable(_file_rows(path) for path in spec.files)
    last_row = None if spec.last_row is None else min(spec.last_row, sys.maxsize)
    selected = islice(rows, min(spec.first_row, sys.maxsize), last_row)
    while chunk := list(islice(selected, chunk_rows)):
        yield chunk


def peek_row(path: Path) -> Values:
    """Return the first row of a file.

    Raises:
        DataError: The file has no rows.
    """
    first = next(_file_rows(path), None)
    if first is None:
        raise DataError(f"{path} has no rows")
    return first.values


def _file_rows(path: Path) -> Iterator[RawRow]:
    problems = _FileProblems(path)
    values = _READERS[path.suffix.lower()](path, problems)
    try:
        for row, value in enumerate(values):
            yield RawRow(row, path, value)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text at byte {error.start}: {error.reason}. Save it as UTF-8.") from error
    except OSError as error:  # no permission, a disk that fails, and what pyarrow says about damaged files
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    problems.check()


def _is_about_rows(name: str) -> bool:
    """Return whether a file of a folder holds no rows: hidden ones, and a catalogue that lies beside its data."""
    return name.startswith(".") or name == CATALOG_FILE


def _read_json(path: Path, problems: _FileProblems) -> Iterator[Values]:
    """Read a JSON array of objects; a `.json` file of JSON Lines is read as such."""
    with path.open("rb") as file:
        start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start.startswith(b"["):
        if _is_spread_over_lines(start):
            raise DataError(
                f"{path}: it begins with one object over several lines. A data file holds an array of objects, "
                "`[{...}, {...}]`, or one object on each line."
            )
        yield from _read_json_lines(path, problems)
        return
    text = path.read_text(encoding="utf-8-sig")
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: the JSON cannot be read: {error}") from error
    del text
    for row, value in enumerate(rows):
        if isinstance(value, dict):
            yield value
        else:
            problems.add(row, f"expected an object, found {type(value).__name__}")


def _is_spread_over_lines(start: bytes) -> bool:
    """Return whether JSON opens an object that does not end on its line: `{` and, next or after spaces, a new line."""
    return start.startswith(b"{") and start[1:].lstrip(b" \t\r").startswith(b"\n")


def _read_json_lines(path: Path, problems: _FileProblems) -> Iterator[Values]:
    row = 0
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except json.JSONDecodeError as error:
                column = min(error.pos, len(line.rstrip("\r\n"))) + 1
                problems.add(row, f"line {number}, column {column} is not valid JSON: {error.msg}")
            except (ValueError, RecursionError) as error:  # numbers of thousands of digits, endless brackets
                problems.add(row, f"line {number}: the JSON cannot be read: {error}")
            else:
                if isinstance(value, dict):
                    yield value
                else:
                    problems.add(row, f"line {number}: expected an object, found {type(value).__name__}")
            row += 1


def _read_csv(path: Path, problems: _FileProblems) -> Iterator[Values]:
    csv.field_size_limit(sys.maxsize)  # answers are longer than the 128 KiB that the module allows by default
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, None)
            if header is None:
                return
            _check_header(header, path)
            row = 0
            for fields in reader:
                if not fields:
                    continue
                if len(fields) == len(header):
                    yield dict(zip(header, fields, strict=True))
                else:
                    problems.add(row, f"line {reader.line_num}: expected {len(header)} fields, found {len(fields)}")
                row += 1
        except csv.Error as error:
            raise DataError(f"{path}: line {reader.line_num} is not valid CSV: {error}") from error


def _check_header(header: list[str], path: Path) -> None:
    """Refuse columns that would be lost or are none."""
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise DataError(f"{path}: the column {', '.join(map(repr, twice))} is there twice; rename or remove one")
    separator = next((mark for mark in (";", "\t", "|") if mark in header[0]), None)
    if len(header) == 1 and separator is not None:
        raise DataError(
            f"{path}: its first line has no comma, but {separator!r}: {header[0]!r}. Columns are separated by commas; "
            "save it so."
        )


def _read_text(path: Path, problems: _FileProblems) -> Iterator[Values]:
    del problems  # every line of text is a row
    with path.open(encoding="utf-8-sig") as file:
        for line in file:
            text = line.rstrip("\r\n")
            if text.strip():
                yield {"text": text}


def _read_parquet(path: Path, problems: _FileProblems) -> Iterator[Values]:
    del problems  # rows of a columnar file cannot be malformed one by one
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1000):
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise DataError(f"{path}: not a readable Parquet file: {error}") from error


def _read_arrow(path: Path, problems: _FileProblems) -> Iterator[Values]:
    """Read an Arrow IPC file, or the stream that `datasets` writes under the same suffix."""
    del problems
    with pa.memory_map(str(path)) as source:
        reader: Any = None
        with suppress(pa.ArrowInvalid):
            file = pa.ipc.open_file(source)
            reader = (file.get_batch(number) for number in range(file.num_record_batches))
        try:
            for batch in reader if reader is not None else pa.ipc.open_stream(source):
                yield from batch.to_pylist()
        except pa.ArrowException as error:
            raise DataError(f"{path}: not a readable Arrow file: {error}") from error


_READERS: Mapping[str, Callable[[Path, _FileProblems], Iterator[Values]]] = {
    ".json": _read_json,
    ".jsonl": _read_json_lines,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
    ".txt": _read_text,
}
