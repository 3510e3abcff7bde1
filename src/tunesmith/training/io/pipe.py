"""A PyTorch loader that can be told to take no more batches, and that says how its workers ended."""

import threading
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader

from tunesmith.data.loading.transport import BatchSlots, receive
from tunesmith.runtime.child_signals import kill_workers, leave_numbers_to_us, start_workers
from tunesmith.training.io.making import BatchMaker, MadeBatch, RowMarks, Task, WorkerStart, take_all
from tunesmith.training.io.settings import LoaderSettings
from tunesmith.training.io.worker_group import WorkerGroup


class Plan(Protocol):
    """What is to be made, by position: lists of row numbers, or rows themselves."""

    def __len__(self) -> int:
        """Return how much of it there is."""
        ...

    def __getitem__(self, position: int, /) -> Any:
        """Return what is at a position."""
        ...


DELIVERY_ERRORS = (RuntimeError, OSError, EOFError)
"""What PyTorch's loader raises when a worker is gone, or when what it sent cannot be received any more."""


class Tap:
    """Gives out the tasks of a plan from a position on, until it is closed."""

    def __init__(self, plan: Plan, position: int) -> None:
        self._plan = plan
        self.position = position
        """Of the next task; all before it were given out."""

        self.is_closed = False

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        if self.is_closed or self.position >= len(self._plan):
            raise StopIteration
        task = (self.position, self._plan[self.position])
        self.position += 1
        return task


class _Taps:
    """What PyTorch's loader asks for tasks once per epoch."""

    def __init__(self) -> None:
        self.current: Tap = Tap([], 0)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.current)


class WorkerPipe:
    """Workers that make the batches of a plan in order.

    Args:
        build_maker: Returns what makes batches, told where workers note their rows, and where they lay what they made.
        settings: One worker or more.
        folder: Where workers write their stacks when asked.
        pins_memory: Whether batches arrive in page-locked memory.
        keeps_workers: Whether the workers go on to the next plan.
    """

    def __init__(
        self,
        build_maker: Callable[[RowMarks, BatchSlots], BatchMaker],
        settings: LoaderSettings,
        folder: str,
        *,
        pins_memory: bool = False,
        keeps_workers: bool = True,
    ) -> None:
        self.settings = settings
        self.workers: list[BaseProcess] = []
        self._marks = RowMarks(settings.num_workers)
        self._slots = BatchSlots(settings.num_workers, settings.prefetch_factor)
        self._taps = _Taps()
        self._keeps_workers = keeps_workers
        self._iterator: Any = None
        with leave_numbers_to_us():
            self._loader: DataLoader[MadeBatch] = DataLoader(
                build_maker(self._marks, self._slots),
                batch_sampler=self._taps,  # type: ignore[arg-type]  # any iterable will do
                collate_fn=take_all,
                num_workers=settings.num_workers,
                prefetch_factor=settings.prefetch_factor,
                pin_memory=pins_memory,
                persistent_workers=keeps_workers,
                worker_init_fn=WorkerStart(folder),
                # Its own generator, or starting a loader would draw from the one that dropout draws from.
                generator=torch.Generator().manual_seed(0),
            )

    @property
    def tap(self) -> Tap:
        """What the workers take their tasks from."""
        return self._taps.current

    def start(self, plan: Plan, position: int) -> None:
        """Begin with the batches of a plan from a position on; what is left of an earlier plan is thrown away."""
        self._taps.current = Tap(plan, position)
        self._iterator, started = start_workers(self._loader)
        self.workers = started or self.workers

    def take(self) -> MadeBatch:
        """Return the next batch, waiting for it.

        Raises:
            StopIteration: All tasks that were given out are done.
            RuntimeError: A worker is gone (or one of the other `DELIVERY_ERRORS`).
        """
        made: MadeBatch = next(self._iterator)
        return made if made.failure is not None else made._replace(batch=receive(made.batch)[0])

    @property
    def group(self) -> WorkerGroup:
        """The workers, and what they are at."""
        return WorkerGroup(self.workers, self._marks)

    def kill_workers(self) -> None:
        """End the workers at once, whatever they are stuck in."""
        kill_workers(self.workers)
        if self._iterator is not None:
            # PyTorch tells workers to leave by an event that all of them read. One that was killed while it read keeps
            # the lock of it for good, and setting it would wait as long. Nobody is left to be told.
            self._iterator._workers_done_event = threading.Event()

    def close(self) -> None:
        """Let the workers go."""
        self._taps.current.is_closed = True
        self._iterator = None  # the loader of persistent workers holds it too
        del self._loader
        self.workers = []
