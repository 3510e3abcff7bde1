"""Compressed files, opened as if they were not."""

import bz2
import gzip
import importlib
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import IO, TextIO, cast

from tunesmith.runtime.optional import require


def open_text(path: Path, *, newline: str | None = None) -> TextIO:
    """Open a file of UTF-8 text, with or without byte order mark, compressed or not.

    Args:
        path: On this disk or in an object store.
        newline: As in `open`.

    Raises:
        MissingDependencyError: The compression needs a package that is not installed.
    """
    return io.TextIOWrapper(cast("io.BytesIO", open_bytes(path)), encoding="utf-8-sig", newline=newline)


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


_OPENERS: Mapping[str, Callable[[Path | IO[bytes]], IO[bytes]]] = {
    ".gz": _open_gzip,
    ".bz2": _open_bzip2,
    ".xz": _open_xz,
    ".zst": _open_zstandard,
}
