"""Makes one batch: in the training process or in a worker, with a note of the row it is at and of what went wrong."""

import faulthandler
import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from torch.utils.data import Dataset, get_worker_info

Task = tuple[int, Sequence[int]]
"""Position of a batch in its epoch, and the numbers of its rows."""

NO_ROW = -(1 << 62)
"""Mark of a worker that is not at any row. Small negative numbers are fillers."""

STACK_SIGNAL = signal.SIGUSR2 if hasattr(signal, "SIGUSR2") else None
"""On which a worker writes down where it is. Windows has no such signal."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception while a batch was made, as far as it can travel between processes."""

    kind: str
    message: str
    stack: str
    row: int | None
    """Number of the row in the data set; `None` where the rows were there and the batch could not be made of them."""


class MadeBatch(NamedTuple):
    """A batch, or what went wrong instead, and what making it took. A tuple, so that PyTorch pins what is in it."""

    position: int
    batch: Any
    failure: Failure | None
    seconds: float
    cpu_seconds: float
    process: int


class RowMarks:
    """For each worker the row that it is at, in memory that outlives it."""

    def __init__(self, num_workers: int) -> None:
        self._rows = RawArray("q", [NO_ROW] * max(1, num_workers))

    def set(self, worker: int, row: int) -> None:
        """Note the row that a worker begins with."""
        self._rows[worker] = row

    def find(self, worker: int) -> int | None:
        """Return the row that a worker was at last, if it was at one."""
        row = self._rows[worker]
        return None if row == NO_ROW else row


class BatchMaker(Dataset[MadeBatch]):
    """Makes batches of rows.

    Args:
        dataset: Rows by number.
        collator: Makes a batch of rows.
        marks: Where workers note what they are at.
    """

    def __init__(self, dataset: Any, collator: Callable[[Any], Any], marks: RowMarks) -> None:
        self._dataset = dataset
        self._collator = collator
        self._marks = marks

    def __getitems__(self, task: Task) -> MadeBatch:
        """Make a batch; PyTorch's loader calls this with what it is given for one batch."""
        return self.make(task)

    def make(self, task: Task) -> MadeBatch:
        """Make a batch. An exception is returned, since what raised it may not be able to travel to another process."""
        position, rows = task
        worker = get_worker_info()
        number = None if worker is None else worker.id
        started, cpu_started = time.perf_counter(), time.thread_time()
        attempt = _Attempt()
        with attempt:
            examples = []
            for row in rows:
                attempt.row = row
                if number is not None:
                    self._marks.set(number, row)
                examples.append(self._dataset[row])
            attempt.row = None
            attempt.batch = self._collator(examples)
        if number is not None:
            self._marks.set(number, NO_ROW)
        seconds, cpu_seconds = time.perf_counter() - started, time.thread_time() - cpu_started
        return MadeBatch(position, attempt.batch, attempt.failure, seconds, cpu_seconds, os.getpid())


class _Attempt:
    """Turns an exception into a note. A data set may be anybody's code, which raises what it likes."""

    def __init__(self) -> None:
        self.row: int | None = None
        self.batch: Any = None
        self.failure: Failure | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        stack = "".join(traceback.format_exception(kind, error, trace))
        self.failure = Failure(kind.__name__, str(error), stack, self.row)
        return True


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """What a worker does first: leave Ctrl-C to the training process, and be ready to say where it is.

    Args:
        folder: Where it writes its stack when asked, as `stack-<process>.txt`.
    """

    folder: str

    def __call__(self, worker: int) -> None:
        """Set up the process that this is called in."""
        # A Ctrl-C in a terminal reaches every process; the run finishes its step first, and needs its workers for it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if STACK_SIGNAL is not None:
            # Not closed: the handler writes to it for as long as the process lives.
            file = stack_file(self.folder, os.getpid()).open("w", encoding="utf-8")
            faulthandler.register(STACK_SIGNAL, file=file, all_threads=True, chain=False)


def stack_file(folder: str, process: int) -> Path:
    """Return where a worker writes its stack."""
    return Path(folder) / f"stack-{process}.txt"


def take_all(made: Any) -> Any:
    """Return what was made as it is: it is a batch already when PyTorch's loader wants to make one of it."""
    return made
