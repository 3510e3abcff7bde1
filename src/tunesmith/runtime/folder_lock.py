"""One run to a folder: a lock that the operating system gives back when its process dies, however it dies."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from tunesmith.errors import ConfigError, ConfigProblem

try:
    import fcntl as _fcntl
except ImportError:  # Windows
    _locks: ModuleType | None = None
else:
    _locks = _fcntl

logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"

_held: set[int] = set()
"""Descriptors of the locks that this process holds."""


@contextmanager
def hold_folder(folder: str | Path, setting: str) -> Iterator[None]:
    """Keep a folder to this process while the block runs; it is made if it is not there.

    Where the system or the file system knows no locks, nothing is kept.

    Args:
        folder: What to keep.
        setting: That the folder comes from, for the message.

    Raises:
        ConfigError: Another process holds it; the message says which.
    """
    place = Path(folder)
    is_new = not place.exists()
    place.mkdir(parents=True, exist_ok=True)
    descriptor = _acquire(place / LOCK_FILE, setting)
    if descriptor is None:
        yield
        return
    _held.add(descriptor)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield
    finally:
        # While it is still held: whoever opened the file meanwhile sees that it is gone, and makes a new one.
        (place / LOCK_FILE).unlink(missing_ok=True)
        _held.discard(descriptor)
        os.close(descriptor)
        if is_new:
            with suppress(OSError):  # not empty, as it should be
                place.rmdir()


def _acquire(path: Path, setting: str) -> int | None:
    if _locks is None:
        logger.debug("%s is not locked: this system has no flock", path.parent)
        return None
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _locks.flock(descriptor, _locks.LOCK_EX | _locks.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(descriptor)
            raise _refusal(path.parent, setting, holder) from error
        except OSError as error:
            os.close(descriptor)
            logger.debug("%s is not locked: %s", path.parent, error)
            return None
        if _is_file_at(descriptor, path):
            return descriptor
        os.close(descriptor)  # its holder removed it between the two calls


def _is_file_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _refusal(folder: Path, setting: str, holder: str) -> ConfigError:
    return ConfigError(
        [
            ConfigProblem(
                setting,
                f"{folder} is in use by another run ({holder}). Two runs in one folder would mix their logs and "
                f"checkpoints: wait for it to end, stop it, or give this run another `{setting}`.",
            )
        ]
    )


def _forget_in_child() -> None:
    """Close the locks of the parent: a worker that outlives a killed run would keep them otherwise."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
