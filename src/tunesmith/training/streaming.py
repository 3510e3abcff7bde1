"""Rows that are read while a run goes on: their batches, their place in checkpoints, and where they end."""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tunesmith.data.account import Tally
from tunesmith.data.batches import Batch
from tunesmith.data.collators import Collator
from tunesmith.data.streaming.loader import StreamLoader
from tunesmith.data.streaming.source import StreamSource
from tunesmith.errors import CheckpointError, DataError
from tunesmith.runtime.child_signals import kill_workers
from tunesmith.runtime.files import write_json_atomic
from tunesmith.runtime.memory import cpu_quota
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.failures import FeedError
from tunesmith.training.io.making import WorkerStart
from tunesmith.training.io.pipe import DELIVERY_ERRORS
from tunesmith.training.io.settings import LoaderPolicy
from tunesmith.training.io.watchdog import make_stack_folder, watch_workers

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
        self._is_waiting = False
        self._is_overdue = False
        self.loader = self._open(resolve_workers(policy, ranks, source.most_workers(ranks.world_size)))

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches from where the run stands, without end.

        Raises:
            FeedError: A row cannot be read, or a worker died or hangs; with what is known about it.
        """
        batches = iter(self.loader)
        while (batch := self._next(batches)) is not None:
            yield batch

    def _next(self, batches: Iterator[Batch]) -> Batch | None:
        try:
            with self.watching("the next batch of the stream"):
                self._is_waiting = True
                batch = next(batches, None)
                self._is_waiting = False
        except DataError as error:
            raise FeedError(str(error)) from error
        except DELIVERY_ERRORS as error:
            if not self.loader.num_workers:
                raise
            if self._is_overdue:
                raise FeedError(
                    f"No batch came within {self._policy.timeout_seconds:g} s (data_timeout_seconds), and the workers "
                    "were ended. Look at the stacks above; raise data_timeout_seconds if a batch may take that long."
                ) from error
            raise FeedError(
                f"A worker that reads and encodes rows is gone: {error}. The system ends processes this way when "
                "memory runs out: lower dataloader_num_workers or buffer_size."
            ) from error
        return batch

    def watching(self, what: str) -> AbstractContextManager[None]:
        """Report where everything is if the block takes longer than `data_timeout_seconds`."""
        return nullcontext() if self._watchdog is None else self._watchdog.watching(what)

    @property
    def worker_processes(self) -> list[int]:
        """Numbers of the worker processes there are."""
        return [worker.pid for worker in self.loader.workers if worker.pid is not None]

    def end_workers(self) -> None:
        """End workers that deliver nothing; called in the thread of the watchdog."""
        if self._is_waiting and self.loader.workers:
            self._is_overdue = True
            kill_workers(self.loader.workers)

    def close(self) -> None:
        """Watch no longer; the workers go with the last who asks for batches."""
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
        if self._policy.tunes_workers and recorded != max(1, self.loader.num_workers):
            # As many as there were: with another number, rows would come in another order.
            self.loader = self._open(recorded)
        self.loader.load(state)

    def _open(self, num_workers: int) -> StreamLoader:
        source, collator, batch_size, drop_last = self._arguments
        return StreamLoader(
            source,
            collator,
            batch_size=batch_size,
            ranks=self._ranks,
            num_workers=num_workers,
            drop_last=drop_last,
            prefetch_factor=self._policy.start.prefetch_factor,
            pin_memory=self._policy.pins_memory,
            worker_init_fn=WorkerStart(self._folder),
        )


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
