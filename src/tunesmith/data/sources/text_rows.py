"""Rows of CSV files and of plain text."""

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tunesmith.data.sources.compression import open_text
from tunesmith.data.sources.problems import MalformedRow, find_broken_byte
from tunesmith.errors import DataError

Row = dict[str, Any] | MalformedRow


def read_csv(path: Path) -> Iterator[Row]:
    """Yield the rows under the header; every value is text."""
    csv.field_size_limit(sys.maxsize)  # answers are longer than the 128 KiB that the module allows by default
    with open_text(path, newline="", errors="surrogateescape") as file:
        reader = csv.reader(file, strict=True)
        row = line = 0
        try:
            header = read_header(reader, path)
            line = reader.line_num
            for fields in filter(None, reader):
                values = build_row(header, fields)
                if isinstance(values, MalformedRow):
                    values = MalformedRow(f"line {reader.line_num}, {values.what}")
                yield values
                row, line = row + 1, reader.line_num
        except csv.Error as error:
            begins = f", in a record that begins at line {line + 1}" if reader.line_num > line + 1 else ""
            raise DataError(
                f"{path}: line {reader.line_num} is not valid CSV (row {row + 1}{begins}): {error}. A quote opens or "
                "closes where it must not; inside quotes it is written twice."
            ) from error


def read_header(reader: Iterator[list[str]], path: Path) -> list[str]:
    """Return the names of the columns, before which blank lines may stand; none where the file is empty.

    Raises:
        DataError: They are separated by something else than commas, are there twice, or are not UTF-8 text.
    """
    header = next(filter(None, reader), [])
    broken = find_broken_byte(",".join(header))
    if broken is not None:
        raise DataError(f"{path}, header: {broken}.")
    check_column_names(header, path)
    _check_separator(header, path)
    return header


def build_row(header: Sequence[str], fields: Sequence[str]) -> Row:
    """Return the row of a record, or what is wrong with it."""
    if len(fields) != len(header):
        return MalformedRow(f"expected {len(header)} fields, found {len(fields)}")
    broken = find_broken_byte(",".join(fields))
    return dict(zip(header, fields, strict=True)) if broken is None else MalformedRow(broken)


def check_column_names(names: Sequence[str], path: Path) -> None:
    """Refuse columns that would be lost."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path}: the column {', '.join(map(repr, twice))} is there twice; rename or remove one")


def _check_separator(header: list[str], path: Path) -> None:
    separator = next((mark for mark in (";", "\t", "|") if header and mark in header[0]), None)
    if len(header) == 1 and separator is not None:
        raise DataError(
            f"{path}: its first line has no comma, but {separator!r}: {header[0]!r}. Columns are separated by commas; "
            "save it so."
        )


def read_text(path: Path) -> Iterator[Row]:
    """Yield `{"text": line}` for every line that is not blank."""
    return read_lines(path, parse_text)


def read_lines(path: Path, parse: Callable[[str], Row]) -> Iterator[Row]:
    """Yield what is on each line that is not blank; of a malformed one, what is wrong with which line."""
    with open_text(path, errors="surrogateescape") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                row = parse(line)
                yield MalformedRow(f"line {number}, {row.what}") if isinstance(row, MalformedRow) else row


def parse_text(line: str) -> Row:
    """Return the row of a line, without its end."""
    broken = find_broken_byte(line)
    return {"text": line.rstrip("\r\n")} if broken is None else MalformedRow(broken)
