"""Compressed files, opened as if they were not."""

import bz2
import codecs
import gzip
import importlib
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import IO, TextIO, cast

from tunesmith.errors import DataError
from tunesmith.runtime.optional import require


def open_text(path: Path, *, newline: str | None = None, errors: str = "strict") -> TextIO:
    """Open a file of UTF-8 text, with or without byte order mark, compressed or not.

    Args:
        path: On this disk or in an object store.
        newline: As in `open`.
        errors: As in `open`.

    Raises:
        DataError: The file is of UTF-16, as Excel and PowerShell write it.
        MissingDependencyError: The compression needs a package that is not installed.
    """
    file = open_bytes(path)
    with ExitStack() as stack:
        stack.callback(file.close)
        check_is_text(path, file)
        stack.pop_all()
    return io.TextIOWrapper(cast("io.BytesIO", file), encoding="utf-8-sig", newline=newline, errors=errors)


def check_is_text(path: Path, file: IO[bytes]) -> None:
    """Refuse UTF-16, of which every second byte is zero, and files of another kind than their name says.

    Args:
        path: For the message.
        file: At its beginning, where it is left.
    """
    start = file.read(8)
    file.seek(0)
    kind = next((kind for magic, kind in _KINDS.items() if start.startswith(magic)), None)
    if kind is not None:
        raise DataError(f"{path}: the file begins as {kind}, and not as what its name says. Name or unpack it so.")
    is_utf_16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if is_utf_16 or (len(start) > 2 and {any(start[::2]), any(start[1::2])} == {True, False}):
        raise DataError(
            f"{path}: the file is UTF-16, as Excel (Unicode text) and PowerShell (>) write it, and UTF-8 is needed. "
            "Save it as UTF-8, for instance with `iconv -f UTF-16 -t UTF-8`."
        )


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, uncompressed on the way where its name says that it is compressed."""
    opener = _OPENERS.get(path.suffix.lower())
    if opener is None:
        return path.open("rb")
    return opener(path if isinstance(path, Path) else path.open("rb"))


def find_file_type(path: Path) -> str:
    """Return the suffix that says what a file holds: `.jsonl` for `rows.jsonl` and `rows.jsonl.gz` alike."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in _OPENERS else suffix


def is_compressed(path: Path) -> bool:
    """Return whether the name of a file says that it is compressed."""
    return path.suffix.lower() in _OPENERS


def damage_errors(path: Path) -> tuple[type[Exception], ...]:
    """Return what reading raises where a file is damaged or cut short, or the disk or network fails."""
    errors = (OSError, EOFError, lzma.LZMAError, zlib.error)
    return (*errors, _zstd().ZstdError) if path.suffix.lower() == ".zst" else errors


def _open_gzip(file: Path | IO[bytes]) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(file, "rb"))


def _open_bzip2(file: Path | IO[bytes]) -> IO[bytes]:
    return bz2.open(file, "rb")


def _open_xz(file: Path | IO[bytes]) -> IO[bytes]:
    return lzma.open(file, "rb")


def _open_zstandard(file: Path | IO[bytes]) -> IO[bytes]:
    return cast("IO[bytes]", _zstd().open(file, "rb"))


def _zstd() -> ModuleType:
    """Return the module that the standard library has from Python 3.14 on."""
    if sys.version_info >= (3, 14):
        return importlib.import_module("compression.zstd")
    return require("backports.zstd", "zstd", "read .zst files")


_KINDS = {
    b"PAR1": "Parquet (.parquet)",
    b"ARROW1": "Arrow (.arrow)",
    b"\x1f\x8b": "gzip (.gz)",
    b"BZh91AY": "bzip2 (.bz2)",
    b"\xfd7zXZ": "xz (.xz)",
    b"\x28\xb5\x2f\xfd": "Zstandard (.zst)",
    b"PK\x03\x04": "a zip archive or an Excel sheet, which are not read",
}
"""Files that others take for text, by their first bytes."""

_OPENERS: Mapping[str, Callable[[Path | IO[bytes]], IO[bytes]]] = {
    ".gz": _open_gzip,
    ".bz2": _open_bzip2,
    ".xz": _open_xz,
    ".zst": _open_zstandard,
}
