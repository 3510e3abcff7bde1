"""Encoded rows by content key: written once by one process, renamed into place, mapped by all the others.

Nobody waits in a collective operation: processes that do not write watch the file system, so that no time-out of the
process group depends on the size of the data.
"""

import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunesmith.data.loading.encoded import DamagedFileError, EncodedRows, EncodedRowsWriter
from tunesmith.data.loading.locks import LockTimes, LockWatch, WriterLock
from tunesmith.data.loading.room import check_room
from tunesmith.errors import DataError
from tunesmith.runtime.disk import NO_ROOM, render_room
from tunesmith.runtime.ranks import Ranks

logger = logging.getLogger(__name__)

_FOLDER_ERRORS = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
        *(errno.EACCES, errno.EPERM, errno.EROFS),
        *(errno.EEXIST, errno.ENOTDIR, errno.ENOENT, errno.ENAMETOOLONG),
    }
)
"""What is said of a folder that is full, locked, or none. Rows that cannot be read are a `DataError` by then."""

WriteRows = Callable[[EncodedRowsWriter], Mapping[str, Any]]
"""Writes all rows of a key to the given writer and returns the metadata to keep with them."""


def find_default_cache_dir() -> Path | None:
    """Return the folder for prepared data of this user; `None` for one without a home, as numbers in containers are."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "tunesmith"
    except RuntimeError:
        return None


def resolve_cache_dir(setting: str | None) -> Path:
    """Return the folder for prepared data.

    Args:
        setting: Value of `dataset_cache_dir`.

    Raises:
        DataError: Nothing is set, and the user has no home folder.
    """
    folder = Path(setting).expanduser() if setting else find_default_cache_dir()
    if folder is None:
        raise DataError(
            "There is no place for prepared data: this user has no home folder. Set dataset_cache_dir to a folder, or "
            "the variable HOME."
        )
    return folder


@dataclass(frozen=True, slots=True)
class RowCache:
    """Files of encoded rows in one folder, one per content key."""

    folder: Path
    ranks: Ranks = field(default_factory=Ranks)
    lock_times: LockTimes = field(default_factory=LockTimes)
    head_start_seconds: float = 60.0
    """How long the other processes of a run leave it to the first one on their machine to begin writing."""

    poll_seconds: float = 0.2
    origin: Path | None = None
    """Another folder, on a larger and slower disk, from which prepared data is copied rather than prepared again."""

    def obtain(self, key: str, write: WriteRows, *, overwrite: bool = False, expected_bytes: int = 0) -> EncodedRows:
        """Return the rows of a key, writing them if they are not there yet.

        Exactly one of the processes that ask for a key at the same time writes; the others wait for its file. If the
        writer dies, another one takes over.

        Args:
            key: Everything the rows depend on, as a short text that can be part of a file name.
            write: Called in the one process that writes.
            expected_bytes: About how much there will be, for a look at the room there is. 0 where nobody knows.
            overwrite: Write again even if the rows are there. Only the first process of a machine does so: the others
                can use the old file, which has the same content.

        Raises:
            DataError: The folder cannot be written.
        """
        path = self.folder / f"{key}.arrow"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            rewrite = overwrite and self.ranks.is_local_main
            rows = None if rewrite else self._read(path)
            if rows is not None:
                return rows
            prepared = None if self.origin is None or overwrite else self._read(self.origin / path.name)
            if prepared is not None:
                write, expected_bytes = _copying(prepared), prepared.path.stat().st_size
            if self.ranks.is_local_main:
                check_room(self.folder, expected_bytes)
            return self._write_or_wait(path, write, rewrite=rewrite)
        except OSError as error:
            if error.errno in _FOLDER_ERRORS:
                room = f" ({render_room(self.folder, expected_bytes)})" if error.errno in NO_ROOM else ""
                raise DataError(
                    f"{self.folder} cannot take the prepared data: {error.strerror}{room}. "
                    "Make room there, or set dataset_cache_dir to another folder."
                ) from error
            raise

    def _write_or_wait(self, path: Path, write: WriteRows, *, rewrite: bool) -> EncodedRows:
        lock = WriterLock(path.with_suffix(".lock"), self.lock_times)
        if not self.ranks.is_local_main:
            self._leave_a_head_start(path, lock.path)
        while True:
            if lock.acquire():
                with lock:
                    # The file may have been finished between the look and the lock.
                    rows = None if rewrite else self._read(path)
                    return self._write(path, write) if rows is None else rows
            self._wait(path, lock.path)
            rewrite = False  # what another process has just written is as new as can be
            if not lock.path.exists():
                rows = self._read(path)
                if rows is not None:
                    return rows
                if not self.ranks.is_local_main:
                    self._leave_a_head_start(path, lock.path)

    def _write(self, path: Path, write: WriteRows) -> EncodedRows:
        for leftover in self.folder.glob(f".{path.name}.incomplete-*"):
            leftover.unlink(missing_ok=True)
        beside = path.with_name(f".{path.name}.incomplete-{socket.gethostname()}-{os.getpid()}")
        writer = EncodedRowsWriter(beside)
        try:
            writer.finish(write(writer))
            writer.sync()
            writer.close()
            beside.replace(path)
        finally:  # an interrupt, too, leaves no half file behind
            writer.close()
            beside.unlink(missing_ok=True)
        return EncodedRows(path)

    def _read(self, path: Path) -> EncodedRows | None:
        if not path.exists():
            return None
        try:
            return EncodedRows(path)
        except DamagedFileError as error:
            logger.warning("The prepared data in %s is damaged (%s): it is made again.", path, error)
            return None

    def _wait(self, path: Path, lock: Path) -> None:
        """Wait until the lock is gone, taking it away if it is stale."""
        watch = LockWatch(lock, self.lock_times)
        holder = watch.holder()
        if holder is not None:
            logger.info("Waiting for the data that %s is preparing (%s).", holder, path)
        while lock.exists():
            if watch.is_stale():
                logger.warning("%s is gone and left its lock behind: %s is prepared here.", holder, path)
                watch.remove_stale()
                return
            time.sleep(self.poll_seconds)

    def _leave_a_head_start(self, path: Path, lock: Path) -> None:
        deadline = time.monotonic() + self.head_start_seconds
        while time.monotonic() < deadline and not path.exists() and not lock.exists():
            time.sleep(self.poll_seconds)


def _copying(rows: EncodedRows) -> WriteRows:
    """Return what writes rows that lie elsewhere."""

    def write(writer: EncodedRowsWriter) -> Mapping[str, Any]:
        logger.info("Copying prepared data from %s.", rows.path)
        for chunk in rows.chunks:
            writer.write(chunk)
        return rows.metadata

    return write
