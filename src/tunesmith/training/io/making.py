"""Makes one batch: in the training process or in a worker, with a note of the row it is at and of what went wrong."""

import faulthandler
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import Any, NamedTuple

from torch.utils.data import Dataset, get_worker_info

from tunesmith.data.loading.attempts import Attempt, Failure
from tunesmith.data.loading.datasets import RowsAtOnce
from tunesmith.data.loading.transport import BatchSlots
from tunesmith.data.streaming.pieces import PieceEncoder
from tunesmith.runtime.stop_signals import leave_stopping_to_parent

Task = tuple[int, Any]
"""Position of a batch in its epoch, and the numbers of its rows; of a piece in its stream, and the rows."""

_NO_ROW = -(1 << 62)
"""Mark of a worker that is not at any row. Small negative numbers are fillers."""

STACK_SIGNAL = signal.SIGUSR2 if hasattr(signal, "SIGUSR2") else None
"""On which a worker writes down where it is. Windows has no such signal."""


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
        self._rows = RawArray("q", [_NO_ROW] * max(1, num_workers))

    def set(self, worker: int, row: int | None) -> None:
        """Note the row that a worker begins with, or that it is at none."""
        self._rows[worker] = _NO_ROW if row is None else row

    def find(self, worker: int) -> int | None:
        """Return the row that a worker was at last, if it was at one."""
        row = self._rows[worker]
        return None if row == _NO_ROW else row


class BatchMaker(Dataset[MadeBatch]):
    """Makes batches of rows.

    Args:
        dataset: Rows by number.
        collator: Makes a batch of rows.
        marks: Where workers note what they are at.
        slots: Where workers lay batches.
    """

    def __init__(
        self, dataset: Any, collator: Callable[[Any], Any], marks: RowMarks, slots: BatchSlots | None = None
    ) -> None:
        self._dataset = dataset
        self._gives_several = isinstance(dataset, RowsAtOnce)
        self._collator = collator
        self._marks = marks
        self._slots = slots

    def __getitems__(self, task: Task) -> MadeBatch:
        """Make a batch; PyTorch's loader calls this with what it is given for one batch."""
        return self.make(task)

    def make(self, task: Task) -> MadeBatch:
        """Make a batch. An exception is returned, since what raised it may not be able to travel to another process."""
        position, rows = task
        worker = get_worker_info()
        number = None if worker is None else worker.id
        started, cpu_started = time.perf_counter(), time.thread_time()
        attempt = Attempt()
        with attempt:
            made = self._make_of(rows, attempt, number)
            attempt.made = made if number is None or self._slots is None else self._slots.send(made, number)
        if number is not None:
            self._marks.set(number, None)
        seconds, cpu_seconds = time.perf_counter() - started, time.thread_time() - cpu_started
        return MadeBatch(position, attempt.made, attempt.failure, seconds, cpu_seconds, os.getpid())

    def _make_of(self, rows: Any, attempt: Attempt, worker: int | None) -> Any:
        return self._collator(self._read(rows, attempt, worker))

    def _read(self, rows: Sequence[int], attempt: Attempt, worker: int | None) -> list[Any]:
        """Return rows, all at once where nobody has to know which of them it is at."""
        if self._gives_several and worker is None:
            together = Attempt()
            with together:
                found: list[Any] = self._dataset.__getitems__(rows)
                return found
        examples = []  # one by one: a worker may die of one, and an exception is that of one
        for row in rows:
            attempt.row = row
            if worker is not None:
                self._marks.set(worker, row)
            examples.append(self._dataset[row])
        attempt.row = None
        return examples


class PieceMaker(BatchMaker):
    """Encodes pieces of a stream.

    Args:
        encoder: Encodes them.
        marks: Where workers note what they are at.
        slots: Where workers lay what they made.
    """

    def __init__(self, encoder: PieceEncoder, marks: RowMarks, slots: BatchSlots | None = None) -> None:
        super().__init__(encoder, take_all, marks, slots)
        self._encoder = encoder

    def _make_of(self, rows: Any, attempt: Attempt, worker: int | None) -> Any:
        if isinstance(rows, Failure):  # of reading them
            attempt.failure = rows
            return None

        def note(row_id: int | None) -> None:
            attempt.row = row_id
            if worker is not None:
                self._marks.set(worker, row_id)

        return self._encoder.encode(rows, note)


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """What a worker does first: leave it to the training process when to stop, and be ready to say where it is.

    Args:
        folder: Where it writes its stack when asked, as `stack-<process>.txt`.
    """

    folder: str

    def __call__(self, worker: int) -> None:
        """Set up the process that this is called in."""
        leave_stopping_to_parent()
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
