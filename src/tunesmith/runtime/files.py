"""Files and folders that are whole or do not exist, whenever the process dies."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from tunesmith.errors import ConfigError, ConfigProblem, TunesmithError
from tunesmith.runtime.disk import NO_ROOM, name_failed_file, render_room

_WRITER_FAILED = ("inline_container", "PytorchStreamWriter", "unexpected pos")
"""Words of the RuntimeError with which torch.save hides that a disk is full."""

_LEAST_BYTES = 1 << 14
"""What the smallest of runs leaves."""


def check_writable(folder: str | Path, setting: str) -> None:
    """Make sure that a folder can be made and written to, before hours are spent on what goes there. Leaves nothing.

    Raises:
        ConfigError: It cannot; the message names the setting that the folder comes from.
    """
    nearest = Path(folder).absolute()
    while not nearest.exists():  # a file may stand where a folder is to go
        nearest = nearest.parent
    try:
        with tempfile.TemporaryFile(dir=nearest) as file:
            file.write(bytes(_LEAST_BYTES))  # an empty file finds its place on a full disk, too
    except OSError as error:
        room = f" ({render_room(nearest)})" if error.errno in NO_ROOM else ""
        problem = f"`{setting}` is '{folder}', and nothing can be written to {nearest}: {error.strerror}{room}. "
        advice = "Make room there, or name another folder." if room else "Name another folder."
        raise ConfigError([ConfigProblem(setting, f"{problem}{advice}")]) from error


@contextmanager
def explain_failed_writes(
    where: str | Path, kind: type[TunesmithError], advice: str, needed_bytes: int = 0
) -> Iterator[None]:
    """Say in plain words that files could not be written, whichever library was writing them, and what room there is.

    Args:
        where: What was being written.
        kind: Exception to raise.
        advice: What to do, as a sentence.
        needed_bytes: About how much it takes. 0 where nobody knows.
    """
    try:
        yield
    except OSError as error:
        room = f" ({render_room(where, needed_bytes)})" if error.errno in NO_ROOM else ""
        raise kind(f"{where} cannot be written: {error.strerror or error}{room}. {advice}") from error
    except SafetensorError as error:
        room = render_room(where, needed_bytes)
        raise kind(f"{where} cannot be written: {error} ({room}). {advice}") from error
    except RuntimeError as error:
        if not any(word in str(error) for word in _WRITER_FAILED):
            raise
        room = render_room(where, needed_bytes)
        raise kind(f"{where} cannot be written to its end; the disk may be full ({room}). {advice}") from error


def write_text_atomic(path: str | Path, text: str) -> None:
    """Write UTF-8 text so that a reader sees either the old file or the whole new one."""
    with atomic_file(path) as beside, beside.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Write a file beside its final place and rename it there when the block ends without an error.

    Yields:
        Where to write. Its name ends in nothing that says what kind of file it is.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.incomplete-{os.getpid()}")
    try:
        with name_failed_file(target):
            yield beside
            _sync(beside)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
    sync_folder(target.parent)


def write_json_atomic(path: str | Path, value: Any) -> None:
    """Write a value as indented JSON, non-ASCII text unescaped; see `write_text_atomic`."""
    write_text_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def atomic_directory(final: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Fill a folder beside its final place and rename it there when the block ends without an error.

    Args:
        final: Where the finished folder goes.
        overwrite: Replace a folder that is already there, once the new one is finished.

    Yields:
        The empty folder to fill. It is removed when the block raises.

    Raises:
        FileExistsError: `final` exists and `overwrite` is false.
    """
    target = Path(final)
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists already")
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.incomplete-{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, beside, ignore_errors=True)
        with name_failed_file(target):
            yield beside
            sync_tree(beside)
        _move_into_place(beside, target, overwrite=overwrite)
        stack.pop_all()


@contextmanager
def atomic_files(folder: str | Path) -> Iterator[Path]:
    """Fill a folder beside a folder in use, and move file by file in when the block ends without an error.

    What else is in the folder stays. Each file is the old or the new one, never a part of one; a process that dies in
    between leaves a mixture of whole files.

    Yields:
        The empty folder to fill. It is removed in any case.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    beside = target / f".incomplete-{os.getpid()}"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        with name_failed_file(target):
            yield beside
            sync_tree(beside)
        for path in sorted(path for path in beside.rglob("*") if not path.is_dir()):
            place = target / path.relative_to(beside)
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)
        sync_folder(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def make_readable(folder: Path) -> None:
    """Give files the permissions of other new files; safetensors writes its own for their owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(0o666 & ~mask)


def _move_into_place(beside: Path, target: Path, *, overwrite: bool) -> None:
    if not target.exists():
        beside.rename(target)
        sync_folder(target.parent)
        return
    if not overwrite:
        raise FileExistsError(f"{target} exists already")
    # A folder cannot replace a full one in one call, so the old one is moved aside and stays whole meanwhile.
    aside = target.with_name(f".{target.name}.replaced-{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    target.rename(aside)
    try:
        beside.rename(target)
    except OSError:
        aside.rename(target)
        raise
    sync_folder(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes as hexadecimal text."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_tree(folder: Path) -> None:
    """Have the system write everything in a folder to its disk, names included."""
    for place, _, names in os.walk(folder):
        for name in names:
            _sync(Path(place) / name)
        sync_folder(Path(place))


def _sync(path: Path) -> None:
    if path.is_symlink():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Have the system write the names in a folder to its disk, so that a rename survives a loss of power."""
    if os.name == "nt":  # Windows cannot open a folder to sync it, and needs no such call
        return
    _sync(folder)
