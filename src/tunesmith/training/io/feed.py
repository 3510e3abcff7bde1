"""The batches of a run, one after the other, from however many workers there are at the time.

The order of batches is a list that is known before an epoch begins. Workers take from it and deliver in order, so the
position in the list is all that has to be kept when the loader changes between two batches: the workers there are
finish what they have begun, and the new ones begin with what was not given out yet. No row comes twice, none is left
out, none changes its place, and no work is thrown away.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from tunesmith.data.loading.transport import BatchSlots
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.bounds import Bound, Demand, Machine, measure_files, measure_worker_bytes, prepare_open_files
from tunesmith.training.io.failures import (
    FeedError,
    Restarts,
    Trouble,
    describe_death,
    describe_failure,
    describe_silence,
)
from tunesmith.training.io.making import BatchMaker, MadeBatch, RowMarks
from tunesmith.training.io.pipe import DELIVERY_ERRORS, Plan, WorkerPipe
from tunesmith.training.io.settings import LoaderPolicy, LoaderSettings
from tunesmith.training.io.tuner import Change, Taken, Tuner
from tunesmith.training.io.watchdog import make_stack_folder, watch_workers

logger = logging.getLogger(__name__)


class Work(Protocol):
    """What a device was given to do, of which it will be done at some time."""

    def is_done(self) -> bool:
        """Return whether it is."""
        ...

    def idle_seconds(self) -> float:
        """Return for how long; 0 while it is not."""
        ...


@dataclass(slots=True)
class FeedRecord:
    """What the feed did since it was made; for the account at the end of a run."""

    batches: int = 0
    made_seconds: float = 0.0
    made_cpu_seconds: float = 0.0
    changes: list[str] = field(default_factory=list)
    """What changed and why, in order."""


class BatchFeed:
    """Makes the batches of one epoch after another.

    Args:
        dataset: Rows by number.
        collator: Makes a batch of rows.
        policy: What is fixed and what is found out.
        ranks: Of this process; its share of the machine follows from them.
        batches_per_step: Micro-batches that the trainer fetches at once.
    """

    def __init__(
        self,
        dataset: Any,
        collator: Callable[[Any], Any],
        policy: LoaderPolicy,
        *,
        ranks: Ranks | None = None,
        batches_per_step: int = 1,
    ) -> None:
        self.dataset = dataset
        self.policy = policy
        self.settings = policy.start
        self.record = FeedRecord()
        self._collator = collator
        self._ranks = ranks or Ranks()
        self._maker = self._build_maker(RowMarks(1))
        self._folder = make_stack_folder(self)
        self._plan: Plan = []
        self._position = 0
        self._pipes: list[WorkerPipe] = []
        self._ahead: deque[tuple[MadeBatch, float]] = deque()
        self._error: FeedError | None = None
        self._wanted: Change | None = None
        self._restarts = Restarts(policy.max_restarts)
        self._most_workers: int | None = None
        self._is_waiting = False
        self._is_overdue = False
        self._handed_over: float | None = None
        self._tuner = self._build_tuner(batches_per_step) if policy.tunes else None
        self._watchdog = watch_workers(self, policy.timeout_seconds, self._folder)

    # -- the epoch ---------------------------------------------------------------------------------------------------

    def open(self, plan: Plan) -> None:
        """Begin an epoch."""
        self._plan = plan
        self._seek(0, start=False)

    def take(self, position: int, work: Work | None = None) -> Any:
        """Return the batch at a position of the epoch; the next one is nearly always asked for.

        Args:
            position: Of the batch.
            work: What a device is busy with meanwhile, if it is: only what lasts longer was waited for.

        Raises:
            FeedError: It cannot be made, after as many attempts as the policy allows.
        """
        if position != self._position:
            self._seek(position)
        elif self.settings.num_workers and not self._pipes:
            self._start_workers(self._position)
        if self._wanted is not None and len(self._pipes) <= 1 and not self._ahead:
            self._apply(self._wanted)
        if self._error is not None and not self._ahead:
            raise self._error
        started = time.perf_counter()
        idle_before = 0.0 if work is None else work.idle_seconds()
        made, idle = self._ahead.popleft() if self._ahead else (self._wait_for(position), 0.0)
        waited = time.perf_counter() - started if work is None else work.idle_seconds() - idle_before
        self._note(made, waited + idle)
        self._position += 1
        return made.batch

    def look_ahead(self, most: int, work: Work) -> list[Any]:
        """Fetch batches that come next while the device is busy anyway, and return those that are new.

        Where one takes longer than the device is busy, the rest of the time counts as waited for.

        Args:
            most: Batches to have ahead at most; none beyond the end of the epoch.
            work: What the device is busy with; nothing is begun once it is done.
        """
        fetched = []
        while self._error is None and len(self._ahead) < most and not work.is_done():
            position = self._position + len(self._ahead)
            if position >= len(self._plan) or self._wanted is not None:
                break
            try:
                made = self._wait_for(position)
            except FeedError as error:  # all processes have to hear of it at the same place: when it is due
                self._error = error
                break
            self._ahead.append((made, work.idle_seconds()))
            fetched.append(made.batch)
        return fetched

    def _wait_for(self, position: int) -> MadeBatch:
        with self.watching(self._describe(position)):
            self._is_waiting = True
            made = self._make(position)
            self._is_waiting = False
        return made

    def close(self) -> None:
        """Let all workers go."""
        self._drop_pipes()
        if self._watchdog is not None:
            self._watchdog.close()

    @property
    def worker_processes(self) -> list[int]:
        """Numbers of the worker processes there are."""
        return [worker.pid for pipe in self._pipes for worker in pipe.workers if worker.pid is not None]

    @property
    def position(self) -> int:
        """Of the batch that comes next."""
        return self._position

    def rows_at(self, position: int) -> list[int]:
        """Return the numbers of the rows in a batch of this epoch."""
        return list(self._plan[position])

    # -- making ------------------------------------------------------------------------------------------------------

    def _build_maker(self, marks: RowMarks, slots: BatchSlots | None = None) -> BatchMaker:
        """Return what makes batches here or in workers, which note their rows and lay what they made as told."""
        return BatchMaker(self.dataset, self._collator, marks, slots)

    def _describe(self, position: int) -> str:
        """Return which batch that is, in words."""
        return f"batch {position + 1} of {len(self._plan)}"

    def _make(self, position: int) -> MadeBatch:
        where = self._describe(position)
        while True:
            try:
                made = self._next(position)
            except DELIVERY_ERRORS as error:
                trouble = self._explain(error, where)
            else:
                if made.failure is None:
                    return made
                trouble = describe_failure(made.failure, where, self.policy.describe_row)
            self.recover(trouble)

    def _next(self, position: int) -> MadeBatch:
        while self._pipes:
            try:
                return self._pipes[0].take()
            except StopIteration:  # it has delivered all that it had begun
                self._pipes.pop(0).close()
        made = self._maker.make((position, self._plan[position]))
        return made._replace(batch=pin_batch(made.batch)) if self.policy.pins_memory else made

    def _note(self, made: MadeBatch, waited: float) -> None:
        if made.position != self._position:
            raise FeedError(f"batch {made.position + 1} came where {self._position + 1} was due")
        now = time.perf_counter()
        self.record.batches += 1
        self.record.made_seconds += made.seconds
        self.record.made_cpu_seconds += made.cpu_seconds
        self._restarts.note_batch()
        if self._tuner is not None and self._handed_over is not None:
            taken = Taken(waited, now - self._handed_over, made.seconds, made.cpu_seconds)
            self._wanted = self._tuner.observe(taken) or self._wanted
        self._handed_over = now

    # -- changing ----------------------------------------------------------------------------------------------------

    def _seek(self, position: int, *, start: bool = True) -> None:
        """Go to another place of the epoch; workers that are kept go there too."""
        for pipe in self._pipes[:-1]:
            pipe.kill_workers()
            pipe.close()
        self._pipes = self._pipes[-1:]
        self._position = position
        self._ahead.clear()
        self._handed_over = None
        if not self._pipes:
            if start and self.settings.num_workers:
                self._start_workers(position)
        elif not self.policy.keeps_workers:
            self._drop_pipes()
        elif start or position == 0:
            self._pipes[0].start(self._plan, position)

    def _apply(self, change: Change) -> None:
        self._wanted = None
        text = f"{self.settings.render()} -> {change.settings.render()}: {change.reason}."
        self.record.changes.append(text)
        logger.info("Loader: %s", text)
        start = self._position
        if self._pipes:
            self._pipes[-1].tap.is_closed = True
            start = self._pipes[-1].tap.position
        self.settings = change.settings
        if change.settings.num_workers:
            self._start_workers(start)

    def _start_workers(self, position: int) -> None:
        while self.settings.num_workers:
            pipe = self._build_pipe()
            if pipe is None:
                return
            try:
                pipe.start(self._plan, position)
            except OSError as error:  # no more processes, memory or descriptors are to be had
                self._lower_workers(error)
            else:
                self._pipes.append(pipe)
                return

    def _build_pipe(self) -> WorkerPipe | None:
        """Return the workers of the settings, or fewer where open files are short; `None` if they allow none."""
        self.settings = fit_to_open_files(self.settings, self._ranks)
        if not self.settings.num_workers:
            return None
        return WorkerPipe(
            self._build_maker,
            self.settings,
            self._folder,
            pins_memory=self.policy.pins_memory,
            keeps_workers=self.policy.keeps_workers,
        )

    def _lower_workers(self, error: OSError) -> None:
        wanted, fewer = self.settings, self.settings.num_workers // 2
        self.settings, self._most_workers = replace(wanted, num_workers=fewer), fewer
        if self._tuner is not None:
            self._tuner.restart(self.settings)
        text = f"{wanted.render()} could not be started ({error}): it goes on with {self.settings.render()}."
        self.record.changes.append(text)
        logger.warning("Loader: %s", text)

    def _drop_pipes(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        self._pipes = []

    # -- trouble -----------------------------------------------------------------------------------------------------

    def _explain(self, error: BaseException, where: str) -> Trouble:
        group, describe_row = self._pipes[0].group, self._describe_near
        if self._is_overdue:
            self._is_overdue = False
            return describe_silence(group, where, self.policy.timeout_seconds or 0.0, describe_row)
        return describe_death(group, error, where, describe_row)

    def _describe_near(self, row: int) -> str:
        """Return where the row is that a worker was at last."""
        return self.policy.describe_row(row)

    def recover(self, trouble: Trouble) -> None:
        """Build the loader again at the batch that did not come, or give up.

        Raises:
            FeedError: It was built again as often as the policy allows.
        """
        for pipe in self._pipes:
            pipe.kill_workers()
        self._drop_pipes()
        self._restarts.note_trouble(trouble)
        fewer = max(1, self.settings.num_workers // 2) if self.settings.num_workers else 0
        if trouble.lacks_files:
            share_by_name()
        self.settings = replace(self.settings, num_workers=fewer)
        self._wanted, self._handed_over, self._most_workers = None, None, fewer
        if self._tuner is not None:
            self._tuner.restart(self.settings)
        text = f"goes on at the same batch with {self.settings.render()} ({self._restarts.render()})"
        self.record.changes.append(f"{trouble.what}; it {text}.")
        logger.warning("%s", trouble.render(f"The loader {text}."))
        if fewer:
            self._start_workers(self._position + len(self._ahead))

    # -- measuring ---------------------------------------------------------------------------------------------------

    def _build_tuner(self, batches_per_step: int) -> Tuner:
        return Tuner(
            self.policy.start,
            self.find_bound,
            tunes_workers=self.policy.tunes_workers,
            tunes_prefetch=self.policy.tunes_prefetch,
            batches_per_step=batches_per_step,
        )

    def find_bound(self, demand: Demand) -> Bound:
        """Return the most workers that this process may have for what is known of them."""
        measured = measure_worker_bytes(self.worker_processes)
        bound = Machine.measured(self._ranks).bound(
            replace(demand, worker_bytes=measured), num_batches=len(self._plan), files=measure_files()
        )
        if self._most_workers is not None and self._most_workers < bound.workers:
            return Bound(self._most_workers, "with more, one failed before")
        return bound

    def end_workers(self) -> None:
        """End workers that deliver nothing; called in the thread of the watchdog."""
        if self._pipes and self._is_waiting:
            self._is_overdue = True
            for pipe in self._pipes:
                pipe.kill_workers()

    def watching(self, what: str) -> AbstractContextManager[None]:
        """Report where everything is if the block takes longer than `data_timeout_seconds`."""
        return nullcontext() if self._watchdog is None else self._watchdog.watching(what)


def fit_to_open_files(settings: LoaderSettings, ranks: Ranks) -> LoaderSettings:
    """Raise the limit of open files as far as needed, and return settings with as many workers as it allows."""
    files = prepare_open_files(settings.num_workers, settings.prefetch_factor, ranks.local_world_size)
    if files.note is not None:
        logger.warning("%s", files.note)
    if files.shares_by_name:
        share_by_name()
    return replace(settings, num_workers=files.num_workers)


def share_by_name() -> None:
    """Let tensors of batches travel in named files of shared memory, which take no descriptors."""
    torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]


def pin_batch(batch: Any) -> Any:
    """Return a batch in page-locked memory."""
    if not isinstance(batch, dict):
        return batch
    return {key: value.pin_memory() if isinstance(value, Tensor) else value for key, value in batch.items()}
