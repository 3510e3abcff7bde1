"""Notices that a process waits too long, and writes down where every thread and worker is."""

import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tunesmith.training.io.making import STACK_SIGNAL, stack_file

logger = logging.getLogger(__name__)

_WRITING_SECONDS = 1.0
"""How long workers get to write their stacks."""


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
    asked = []
    for process in workers:
        try:
            os.kill(process, STACK_SIGNAL)
        except ProcessLookupError:
            continue
        asked.append(process)
    if asked:
        time.sleep(_WRITING_SECONDS)
    texts = []
    for process in asked:
        file = stack_file(folder, process)
        stack = file.read_text(encoding="utf-8", errors="replace").strip() if file.exists() else ""
        texts.append(f"worker process {process}:\n{stack or 'it wrote nothing: it may be stopped'}")
    return texts
