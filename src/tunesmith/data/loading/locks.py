"""A lock file that one of many processes holds while it writes, and that does not outlive it.

The lock saves work; it does not guard the result. Whoever writes does so beside the final file and renames, and
all writers of one key write the same bytes, so that even two at once (a lock taken for stale by mistake) do no harm.
"""

import json
import os
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil


@dataclass(frozen=True, slots=True)
class LockTimes:
    """How often a holder shows that it is alive, and when the others stop believing it."""

    beat_seconds: float = 2.0
    """Time between two signs of life."""

    gone_seconds: float = 8.0
    """Silence after which a lock is stale if no such process runs on this machine."""

    silent_seconds: float = 60.0
    """Silence after which a lock is stale wherever its holder runs."""


class WriterLock:
    """Holds a lock file, and touches it from a thread, from `acquire` to `release`."""

    def __init__(self, path: Path, times: LockTimes | None = None) -> None:
        self.path = path
        self.times = times or LockTimes()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._token = ""

    def acquire(self) -> bool:
        """Take the lock if nobody has it; never waits."""
        self._token = json.dumps(
            {"host": socket.gethostname(), "pid": os.getpid(), "started": psutil.Process().create_time()}
        )
        try:
            descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(self._token)
        self._stop.clear()
        self._thread = threading.Thread(target=self._beat, name="cache-lock", daemon=True)
        self._thread.start()
        return True

    def release(self) -> None:
        """Give the lock back; a lock that others took for stale and replaced is left alone."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None
        if _read(self.path) == self._token:
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _beat(self) -> None:
        while not self._stop.wait(self.times.beat_seconds):
            try:
                os.utime(self.path)
            except FileNotFoundError:  # taken for stale, for example after this machine was suspended
                return


@dataclass(slots=True)
class LockWatch:
    """Watches the lock of another process and says when it is stale.

    Silence is measured on this process's own clock, from the changes of the file's time stamp that it sees. The clocks
    of two machines need not agree.
    """

    path: Path
    times: LockTimes = field(default_factory=LockTimes)
    _seen: tuple[str, int] | None = None
    _since: float = 0.0

    def holder(self) -> str | None:
        """Return who holds the lock, in words, or `None` if nobody does."""
        text = _read(self.path)
        if text is None:
            return None
        holder = _parse(text)
        return f"process {holder['pid']} on {holder['host']}" if holder else "another process"

    def is_stale(self) -> bool:
        """Return whether the holder has gone without giving the lock back. Call it again and again."""
        text, stamp = _read(self.path), _stamp(self.path)
        if text is None or stamp is None:
            return False
        if self._seen != (text, stamp):
            self._seen, self._since = (text, stamp), time.monotonic()
            return False
        silence = time.monotonic() - self._since
        if silence >= self.times.silent_seconds:
            return True
        return silence >= self.times.gone_seconds and _is_gone(text)

    def remove_stale(self) -> None:
        """Take a stale lock away, unless its holder came back or another process was faster."""
        # Renaming picks one winner; what was caught is checked, since the lock may have been replaced meanwhile.
        caught = self.path.with_name(f"{self.path.name}.stale-{socket.gethostname()}-{os.getpid()}")
        try:
            self.path.rename(caught)
        except FileNotFoundError:
            return
        if self._seen is not None and _read(caught) != self._seen[0] and not self.path.exists():
            caught.rename(self.path)
            return
        caught.unlink(missing_ok=True)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _stamp(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _parse(text: str) -> dict[str, object] | None:
    try:
        holder = json.loads(text)
    except ValueError:
        return None  # written halfway; the time stamp decides
    return holder if isinstance(holder, dict) and {"host", "pid", "started"} <= set(holder) else None


def _is_gone(text: str) -> bool:
    """Return whether the process ran on this machine and runs no more; a reused process number does not count."""
    holder = _parse(text)
    if holder is None or holder["host"] != socket.gethostname() or not isinstance(holder["pid"], int):
        return False
    try:
        return psutil.Process(holder["pid"]).create_time() != holder["started"]
    except psutil.NoSuchProcess:
        return True
