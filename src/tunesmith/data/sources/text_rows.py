"""Rows of CSV files and of plain text."""

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tunesmith.data.sources.compression import open_text
from tunesmith.data.sources.problems import FileProblems
from tunesmith.errors import DataError


def read_csv(path: Path, problems: FileProblems) -> Iterator[dict[str, Any]]:
    """Yield the rows under the header; every value is text."""
    csv.field_size_limit(sys.maxsize)  # answers are longer than the 128 KiB that the module allows by default
    with open_text(path, newline="") as file:
        reader = csv.reader(file, strict=True)
        row = 0
        try:
            header = next(filter(None, reader), None)  # blank lines may stand before it
            if header is None:
                return
            check_column_names(header, path)
            _check_separator(header, path)
            for fields in reader:
                if not fields:
                    continue
                if len(fields) == len(header):
                    yield dict(zip(header, fields, strict=True))
                else:
                    problems.add(row, f"line {reader.line_num}: expected {len(header)} fields, found {len(fields)}")
                row += 1
        except csv.Error as error:
            raise DataError(f"{path}: line {reader.line_num} is not valid CSV (row {row + 1}): {error}") from error


def check_column_names(names: Sequence[str], path: Path) -> None:
    """Refuse columns that would be lost."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path}: the column {', '.join(map(repr, twice))} is there twice; rename or remove one")


def _check_separator(header: list[str], path: Path) -> None:
    separator = next((mark for mark in (";", "\t", "|") if mark in header[0]), None)
    if len(header) == 1 and separator is not None:
        raise DataError(
            f"{path}: its first line has no comma, but {separator!r}: {header[0]!r}. Columns are separated by commas; "
            "save it so."
        )


def read_text(path: Path, problems: FileProblems) -> Iterator[dict[str, Any]]:
    """Yield `{"text": line}` for every line that is not blank."""
    del problems  # every line of text is a row
    with open_text(path) as file:
        for line in file:
            text = line.rstrip("\r\n")
            if text.strip():
                yield {"text": text}
