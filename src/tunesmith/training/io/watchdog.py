"""Notices that a process waits too long, and writes down where every thread and worker is."""

import logging
import os
import shutil
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tunesmith.training.io.making import STACK_SIGNAL, stack_file

logger = logging.getLogger(__name__)

_WRITING_SECONDS = 5.0
"""Most time that workers get to write their stacks."""

_LOOKING_SECONDS = 0.1


class Watched(Protocol):
    """What has workers that may hang."""

    @property
    def worker_processes(self) -> list[int]:
        """Numbers of the worker processes there are."""
        ...

    def end_workers(self) -> None:
        """End the workers if they are waited for; called in the thread of the watchdog."""
        ...


@dataclass(slots=True)
class _Watch:
    what: str
    started: float
    alarms: int = 0


class Watchdog:
    """Watches one wait at a time; its thread starts with the first and ends with the process.

    Args:
        timeout_seconds: Time after which a wait is reported, and again each time it has passed once more.
        list_workers: Process numbers of the workers there are.
        folder: Where workers write their stacks.
        on_alarm: Called after the report, in the thread of the watchdog.
    """

    def __init__(
        self,
        timeout_seconds: float,
        *,
        list_workers: Callable[[], Sequence[int]] = tuple,
        folder: str = "",
        on_alarm: Callable[[], None] | None = None,
    ) -> None:
        self.timeout_seconds = timeout_seconds
        self._list_workers = list_workers
        self._folder = folder
        self._on_alarm = on_alarm
        self._watch: _Watch | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = threading.Event()

    @contextmanager
    def watching(self, what: str) -> Iterator[None]:
        """Report if the block takes longer than the timeout.

        Args:
            what: What is waited for, as in "waiting for ...".
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="data watchdog", daemon=True)
            self._thread.start()
        outer, self._watch = self._watch, _Watch(what, time.monotonic())
        try:
            yield
        finally:
            self._watch = outer

    def close(self) -> None:
        """End the thread."""
        self._is_closed.set()

    def _run(self) -> None:
        while not self._is_closed.wait(min(1.0, self.timeout_seconds / 4)):
            watch = self._watch
            if watch is not None and time.monotonic() - watch.started > self.timeout_seconds * (watch.alarms + 1):
                watch.alarms += 1
                self._report(watch)
                if self._on_alarm is not None and watch is self._watch:
                    self._on_alarm()

    def _report(self, watch: _Watch) -> None:
        seconds = time.monotonic() - watch.started
        stacks = [render_stacks(without=threading.get_ident())]
        stacks += collect_worker_stacks(self._list_workers(), self._folder)
        logger.error(
            "Waiting for %s since %.0f s (data_timeout_seconds is %g). Where everything is:\n%s",
            watch.what,
            seconds,
            self.timeout_seconds,
            "\n".join(stacks),
        )


def make_stack_folder(owner: object) -> str:
    """Return a new folder for the stacks of workers, which goes when its owner does."""
    folder = tempfile.mkdtemp(prefix="tunesmith-feed-")
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder


def watch_workers(feed: Watched, timeout_seconds: float | None, folder: str) -> "Watchdog | None":
    """Return what watches the waits for a feed; `None` where it may take as long as it likes.

    Args:
        feed: Has the workers.
        timeout_seconds: Time after which a wait is reported, and the workers are ended.
        folder: Where the workers write their stacks.
    """
    if timeout_seconds is None:
        return None
    watched = weakref.ref(feed)  # a thread must not keep the feed, and with it the workers, alive

    def list_workers() -> list[int]:
        found = watched()
        return [] if found is None else found.worker_processes

    def end_workers() -> None:
        found = watched()
        if found is not None:
            found.end_workers()

    return Watchdog(timeout_seconds, list_workers=list_workers, folder=folder, on_alarm=end_workers)


def render_stacks(*, without: int | None = None) -> str:
    """Return the stack of every thread of this process but one."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [f"process {os.getpid()}"]
    for ident, frame in sys._current_frames().items():
        if ident != without:
            stack = "".join(traceback.format_stack(frame)).rstrip()
            parts.append(f"thread {names.get(ident, ident)}:\n{stack}")
    return "\n".join(parts)


def collect_worker_stacks(workers: Sequence[int], folder: str) -> list[str]:
    """Ask workers where they are, and return what each wrote."""
    if STACK_SIGNAL is None:
        return []
    files = {process: stack_file(folder, process) for process in workers}
    # A process that has no file yet is not ready for the signal, which would end it. Others may have been asked before.
    sizes = {process: len(_read(file)) for process, file in files.items() if file.exists()}
    for process in sizes:
        with suppress(ProcessLookupError):
            os.kill(process, STACK_SIGNAL)
    _wait_for_growth([(files[process], size) for process, size in sizes.items()])
    texts = []
    for process, file in files.items():
        stack = "it has not begun"
        if process in sizes:
            written = _read(file)[sizes[process] :].decode(errors="replace").strip()
            stack = written or "it wrote nothing: it is gone or stopped"
        texts.append(f"worker process {process}:\n{stack}")
    return texts


def _wait_for_growth(files: Sequence[tuple[Path, int]]) -> None:
    """Wait until each file is longer than it was and grows no more, or until there was time enough for it."""
    deadline = time.monotonic() + _WRITING_SECONDS
    before: list[int] = []
    while files and time.monotonic() < deadline:
        time.sleep(_LOOKING_SECONDS)
        now = [len(_read(file)) for file, _ in files]
        if now == before and all(size > old for size, (_, old) in zip(now, files, strict=True)):
            return
        before = now


def _read(file: Path) -> bytes:
    """Return what is in a file; nothing once the feed is gone, and its folder with it."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""
