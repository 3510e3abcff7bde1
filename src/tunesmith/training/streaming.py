"""Rows that are read while a run goes on: their batches, their place in checkpoints, and where they end."""

import json
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tunesmith.data.account import Tally
from tunesmith.data.batches import Batch
from tunesmith.data.collators import Collator
from tunesmith.data.loading.attempts import Failure
from tunesmith.data.streaming.loader import StreamLoader
from tunesmith.data.streaming.source import StreamSource
from tunesmith.errors import CheckpointError
from tunesmith.runtime.child_signals import kill_workers
from tunesmith.runtime.files import write_json_atomic
from tunesmith.runtime.memory import cpu_quota
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.bounds import measure_files, plan_open_files
from tunesmith.training.io.failures import (
    FeedError,
    Restarts,
    Trouble,
    describe_death,
    describe_failure,
    describe_silence,
)
from tunesmith.training.io.feed import Work, fit_to_open_files, share_by_name
from tunesmith.training.io.making import RowMarks, WorkerStart
from tunesmith.training.io.pipe import DELIVERY_ERRORS
from tunesmith.training.io.settings import LoaderPolicy, LoaderSettings
from tunesmith.training.io.watchdog import make_stack_folder, watch_workers
from tunesmith.training.io.worker_group import WorkerGroup

logger = logging.getLogger(__name__)

_WHERE = "the next batch of the stream"

_MOST_WORKERS = 4
"""Workers per process where nobody says how many: tokenizing is rarely slower than what four of them can do."""


class StreamFeed:
    """The batches of this process in a run that streams.

    Args:
        source: What is streamed.
        collator: Makes a batch of rows.
        policy: How batches are made ahead of time.
        batch_size: Rows (or packs) of a micro-batch.
        ranks: Place of this process in the run.
        drop_last: Leave out rows at the end of a stream that do not fill a batch.
    """

    def __init__(
        self,
        source: StreamSource,
        collator: Collator,
        policy: LoaderPolicy,
        *,
        batch_size: int,
        ranks: Ranks,
        drop_last: bool,
    ) -> None:
        self._ranks = ranks
        self._arguments = (source, collator, batch_size, drop_last)
        self._policy = policy
        self._folder = make_stack_folder(self)
        self._watchdog = watch_workers(self, policy.timeout_seconds, self._folder)
        self._restarts = Restarts(policy.max_restarts)
        self._is_waiting = False
        self._is_overdue = False
        self._batches: Iterator[Batch | Failure] | None = None
        self._ahead: deque[Batch] = deque()
        self._error: FeedError | None = None
        self.made_seconds = 0.0
        """What making the batches took that were fetched."""

        self.num_made = 0
        self.most_workers = source.most_workers(ranks.world_size)
        """Workers that can have rows of their own."""

        self._num_workers = resolve_workers(policy, ranks, self.most_workers)
        self.loader, self._marks = self._open(None)

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches from where the run stands, without end.

        Raises:
            FeedError: A row cannot be read, or workers die or hang again and again; with what is known about it.
        """
        self._drop_workers()
        self.loader.rewind()
        self._ahead.clear()
        while True:
            if self._error is not None and not self._ahead:
                raise self._error
            yield self._ahead.popleft() if self._ahead else self._fetch()

    def look_ahead(self, most: int, work: Work) -> list[Batch]:
        """Fetch batches that come next while the device is busy anyway, and return those that are new.

        Args:
            most: Batches to have ahead at most.
            work: What the device is busy with; nothing is begun once it is done.
        """
        fetched = []
        while self._error is None and len(self._ahead) < most and not work.is_done():
            try:
                batch = self._fetch()
            except FeedError as error:  # all processes have to hear of it at the same place: when it is due
                self._error = error
                break
            self._ahead.append(batch)
            fetched.append(batch)
        return fetched

    def _fetch(self) -> Batch:
        with self.watching(_WHERE):
            self._is_waiting = True
            batch = self._make()
            self._is_waiting = False
        return batch

    def _make(self) -> Batch:
        while True:
            try:
                made = next(self._begun())
            except DELIVERY_ERRORS as error:
                if not self.loader.workers:
                    raise
                trouble = self._explain(error)
            else:
                if not isinstance(made, Failure):
                    self._restarts.note_batch()
                    self.num_made += 1
                    self.made_seconds += made["stream_place"].seconds
                    return made
                trouble = describe_failure(made, _WHERE, self._arguments[0].describe_row)
            self._recover(trouble)

    def _begun(self) -> Iterator[Batch | Failure]:
        """Return what gives the batches; its workers are started where there are none."""
        while self._batches is None:
            settings = LoaderSettings(self.loader.num_workers, self._policy.start.prefetch_factor)
            if settings.num_workers:
                self.loader.limit_workers(fit_to_open_files(settings, self._ranks).num_workers)
            try:
                self._batches = self.loader.go_on()
            except OSError as error:  # no more processes, memory or descriptors are to be had
                if not self.loader.num_workers:
                    raise
                self.loader.limit_workers(self.loader.num_workers // 2)
                logger.warning(
                    "Stream: %s could not be started (%s): it goes on with %s.",
                    settings.render(), error, self._render_workers(),
                )  # fmt: skip
        return self._batches

    # -- trouble -----------------------------------------------------------------------------------------------------

    def _explain(self, error: BaseException) -> Trouble:
        group = WorkerGroup(self.loader.workers, self._marks)
        if self._is_overdue:
            self._is_overdue = False
            return describe_silence(group, _WHERE, self._policy.timeout_seconds or 0.0, self._describe_around)
        return describe_death(group, error, _WHERE, self._describe_around)

    def _describe_around(self, row_id: int) -> str:
        """Return where a row is that was read last, or is the first of a window that is encoded."""
        return f"{self._arguments[0].describe_row(row_id)} or a row that is read or encoded with it"

    def _recover(self, trouble: Trouble) -> None:
        """Read on behind the last batch that came, with fewer workers, or give up.

        Raises:
            FeedError: That was done as often as the policy allows, or is of no use.
        """
        self._drop_workers()
        self._restarts.note_trouble(trouble)
        if trouble.lacks_files:
            share_by_name()
        if self.loader.num_workers:
            self.loader.limit_workers(max(1, self.loader.num_workers // 2))
        text = f"goes on at the same batch with {self._render_workers()} ({self._restarts.render()})"
        logger.warning("%s", trouble.render(f"The stream {text}."))

    def _drop_workers(self) -> None:
        kill_workers(self.loader.workers)
        self._batches = None

    def _render_workers(self) -> str:
        return LoaderSettings(self.loader.num_workers, self._policy.start.prefetch_factor).render()

    def watching(self, what: str) -> AbstractContextManager[None]:
        """Report where everything is if the block takes longer than `data_timeout_seconds`."""
        return nullcontext() if self._watchdog is None else self._watchdog.watching(what)

    @property
    def worker_processes(self) -> list[int]:
        """Numbers of the worker processes there are."""
        return [worker.pid for worker in self.loader.workers if worker.pid is not None]

    def end_workers(self) -> None:
        """End workers that deliver nothing; called in the thread of the watchdog."""
        if self._is_waiting and self._batches is not None and self.loader.workers:
            self._is_overdue = True
            kill_workers(self.loader.workers)

    def close(self) -> None:
        """Let all workers go."""
        self._drop_workers()
        if self._watchdog is not None:
            self._watchdog.close()

    def has_rows(self, batch: Batch) -> bool:
        """Return whether a batch has rows of the stream, or only fills a step of other processes."""
        return not batch["stream_place"].is_filler

    def advance(self, batch: Batch) -> None:
        """Take note that a batch is trained on."""
        self.loader.advance(batch)

    def save(self, folder: Path) -> None:
        """Write the place of this process into the folder of a checkpoint."""
        write_json_atomic(folder / state_file(self._ranks.rank), self.loader.state())

    def load(self, folder: Path) -> None:
        """Go to the place of a checkpoint.

        Raises:
            CheckpointError: It has none, or that of another stream.
        """
        path = folder / state_file(self._ranks.rank)
        if not path.is_file():
            raise CheckpointError(
                f"{folder} has no {path.name}: it was not written by a run that streams (streaming: true) on as many "
                "processes. Set streaming and the number of processes as they were."
            )
        state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        recorded = len(state["streams"])
        if self._policy.tunes_workers and recorded != self.loader.num_streams:
            # As many streams as there were, or rows would come in another order; as many workers as there is room for.
            self.loader, self._marks = self._open(recorded)
        self.loader.load(state)

    def _open(self, num_streams: int | None) -> tuple[StreamLoader, RowMarks]:
        source, collator, batch_size, drop_last = self._arguments
        marks = RowMarks(self._num_workers)
        loader = StreamLoader(
            source,
            collator,
            batch_size=batch_size,
            ranks=self._ranks,
            num_workers=self._num_workers,
            num_streams=num_streams,
            drop_last=drop_last,
            prefetch_factor=self._policy.start.prefetch_factor,
            pin_memory=self._policy.pins_memory,
            worker_init_fn=WorkerStart(self._folder),
        )
        loader.note_row = marks.set
        return loader, marks


class StreamEpochs(TrainerCallback):
    """Says how many passes over the rows are done; Trainer takes all steps of a stream for one."""

    def __init__(self, feed: StreamFeed) -> None:
        self._feed = feed

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Correct the number before it is logged."""
        state.epoch = self._feed.loader.progress


def resolve_workers(policy: LoaderPolicy, ranks: Ranks, most: int) -> int:
    """Return how many workers encode rows for this process: as asked, or as processors are left beside the training.

    Args:
        policy: How batches are made ahead of time.
        ranks: All processes of the run.
        most: Workers that can have rows of their own.
    """
    if not policy.tunes_workers:
        return policy.start.num_workers
    share = cpu_quota() / ranks.local_world_size
    return max(0, min(_MOST_WORKERS, most, int(share) - 1))


def render_stream_loading(policy: LoaderPolicy, ranks: Ranks, source: StreamSource) -> tuple[str, str | None]:
    """Return for the plan how batches of a stream are made, and a note where open files are too few.

    Args:
        policy: Of the run.
        ranks: Of this process.
        source: What is streamed.
    """
    most = source.most_workers(ranks.world_size)
    settings = replace(policy.start, num_workers=min(most, resolve_workers(policy, ranks, most)))
    found = ", as processors are left (dataloader_num_workers: auto)" if policy.tunes_workers else ""
    if not settings.num_workers:
        return f"rows are read and encoded in the training process{found}", None
    files = plan_open_files(settings.num_workers, settings.prefetch_factor, ranks.local_world_size, measure_files())
    return f"{settings.render()}{found}; each reads rows of its own", files.note


def state_file(rank: int) -> str:
    """Return the name of the file of a checkpoint that holds the place of a process."""
    return f"stream_state_{rank}.json"


def report_streamed(source: StreamSource, gathered: Sequence[Sequence[Tally]]) -> list[dict[str, Any]]:
    """Return what became of the rows of each data set that were read, as JSON values.

    Args:
        source: What is streamed.
        gathered: Per process, what became of the rows of each data set.
    """
    report = []
    for number, spec in enumerate(source.specs):
        total = Tally()
        for tallies in gathered:
            total.add(tallies[number])
        total.check(spec.name)
        report.append({"name": spec.name, **total.to_dict()})
    return report
