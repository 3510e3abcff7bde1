"""Which files a data set has: one, those of a folder, those of a pattern, here or in an object store."""

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from tunesmith.config.suggestions import render_similar_path
from tunesmith.data.sources.compression import find_file_type, is_compressed
from tunesmith.errors import DataError
from tunesmith.runtime.files import file_digest
from tunesmith.runtime.optional import require

CATALOG_FILE = "dataset_info.json"
"""The file of a folder that lists its data sets."""

FILE_TYPES = (".json", ".jsonl", ".csv", ".parquet", ".arrow", ".txt")
_COMPRESSIBLE = (".json", ".jsonl", ".csv", ".txt")
_NOT_ROWS = (CATALOG_FILE, "state.json", "dataset_dict.json")
"""Files beside rows: a catalogue, and what `datasets` writes beside the data it saves."""

_PAPERS = ("README", "LICENSE", "NOTICE", "CITATION")
"""What repositories of data sets hold for people to read, whatever the ending."""


def is_remote(name: str) -> bool:
    """Return whether a name is a place in an object store or another file system that fsspec knows."""
    scheme, mark, _ = name.partition("://")
    return bool(mark) and scheme.isalnum()


def is_pattern(name: str) -> bool:
    """Return whether a name stands for several files, as `parts/*.jsonl` does."""
    return glob.has_magic(name)


def has_match(pattern: Path) -> bool:
    """Return whether there is a file on this disk that a pattern stands for."""
    return is_pattern(str(pattern)) and next(glob.iglob(str(pattern), recursive=True), None) is not None


def build_path(name: str, folder: Path | None = None) -> Path:
    """Return the path of a name: in an object store, in a folder, or as it is.

    Paths of object stores are those of `universal_pathlib`. They behave like `pathlib.Path` and are not one: reading
    goes through `open`, never through the name of the file.

    Raises:
        MissingDependencyError: It is in an object store, and the package for those is not installed.
    """
    if not is_remote(name):
        return Path(name) if folder is None else folder / name
    upath = require("upath", "cloud", f"read {name}")
    try:
        return cast("Path", upath.UPath(name.replace("gcs://", "gs://", 1)))
    except (ImportError, ValueError) as error:
        raise DataError(f"{name}: there is no reader for such an address: {error}") from error


def find_files(path: Path, where: str) -> tuple[Path, ...]:
    """Return the data files of a file, a folder or a pattern such as `parts/**/*.jsonl.gz`, ordered by path.

    Raises:
        DataError: There is none, one has an unknown type, or they are of several types.
    """
    try:
        files = _find_candidates(path, where)
    except OSError as error:
        raise DataError(f"{where}: {path} cannot be looked up: {error.strerror or error}") from error
    _check_types(files, path, where)
    return tuple(files)


def _find_candidates(path: Path, where: str) -> list[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        files = sorted((entry for entry in path.iterdir() if entry.is_file() and not _is_about_rows(entry)), key=str)
        if not files:
            inner = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
            hint = f"; for those in its folders, name {path / '**' / '*.jsonl'} or one of {', '.join(inner[:5])}"
            raise DataError(f"{where}: the folder {path} holds no files{hint if inner else ''}")
        return files
    if is_pattern(str(path)):
        files = _expand(path)
        if not files:
            raise DataError(f"{where}: no file is like {path}")
        return files
    hint = render_similar_path(path) if _is_on_disk(path) else ""
    raise DataError(f"{where}: {path} does not exist.{hint}" if hint else f"{where}: {path} does not exist")


def _expand(path: Path) -> list[Path]:
    if _is_on_disk(path):
        found = [Path(name) for name in glob.glob(str(path), recursive=True)]
    else:
        fixed = [part for part in path.parts if not is_pattern(part)]
        anchor = path.parents[len(path.parts) - len(fixed) - 1]
        found = list(anchor.glob(str(path)[len(str(anchor)) :].lstrip("/")))
    return sorted((file for file in found if file.is_file() and not _is_about_rows(file)), key=str)


def _check_types(files: Sequence[Path], path: Path, where: str) -> None:
    types = {find_file_type(file) for file in files}
    unknown = types - set(FILE_TYPES)
    if unknown:
        raise DataError(
            f"{where}: {path} has files of type {', '.join(sorted(suffix or '(none)' for suffix in unknown))}; "
            f"known: {', '.join(sorted(FILE_TYPES))}, and .gz, .bz2, .xz or .zst after {', '.join(_COMPRESSIBLE)}"
            f"{_hint_at_pattern(path)}"
        )
    if len(types) > 1:
        raise DataError(
            f"{where}: {path} mixes {', '.join(sorted(types))}; a data set has one type of file{_hint_at_pattern(path)}"
        )
    packed = next((file for file in files if is_compressed(file)), None)
    if packed is not None and not types <= set(_COMPRESSIBLE):
        raise DataError(f"{where}: {packed} is compressed as a whole; {types.pop()} files are compressed inside")


def _hint_at_pattern(path: Path) -> str:
    return f". A pattern such as {path / '*.jsonl'} names some of a folder" if path.is_dir() else ""


def _is_about_rows(path: Path) -> bool:
    """Return whether a file of a folder holds no rows: hidden ones, and what lies beside data to describe it."""
    return path.name.startswith(".") or path.name in _NOT_ROWS or path.suffix.lower() == ".md" or path.stem in _PAPERS


def content_digest(path: Path) -> str:
    """Return a digest that changes when the content of a file does.

    Of a file on this disk it is that of its bytes. For one in an object store the store answers, so that nothing is
    read twice over the network.
    """
    if _is_on_disk(path):
        return file_digest(path)
    remote: Any = path
    return str(remote.fs.ukey(remote.path))


def _is_on_disk(path: object) -> bool:
    return isinstance(path, Path)
