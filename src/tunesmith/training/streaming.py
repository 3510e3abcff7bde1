"""Rows that are read while a run goes on: their batches, their place in checkpoints, and where they end."""

import json
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tunesmith.data.account import Tally
from tunesmith.data.batches import Batch
from tunesmith.data.collators import Collator
from tunesmith.data.loading.attempts import Attempt
from tunesmith.data.streaming.loader import StreamLoader
from tunesmith.data.streaming.pieces import PieceQueue, TakePiece
from tunesmith.data.streaming.source import StreamSource
from tunesmith.errors import CheckpointError, DataError
from tunesmith.runtime.files import write_json_atomic
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.failures import FeedError, describe_failure
from tunesmith.training.io.feed import Work, pin_batch
from tunesmith.training.io.piece_feed import PieceFeed
from tunesmith.training.io.settings import LoaderPolicy


class StreamFeed:
    """The batches of this process in a run that streams.

    Rows are read, packed and collated by this process, and encoded by it or by the workers of `pieces`.

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
        self._collator = collator
        self._pins_memory = policy.pins_memory
        self._batches: Iterator[Batch] = iter(())
        self._ahead: deque[Batch] = deque()
        self._work: Work | None = None
        self._error: FeedError | None = None
        self.num_made = 0
        """Batches that were fetched."""

        self.pieces = PieceFeed(source, policy, ranks)
        self.loader = StreamLoader(
            source,
            self._collate,
            batch_size=batch_size,
            ranks=ranks,
            drop_last=drop_last,
            open_pieces=self._open_pieces,
        )

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches from where the run stands, without end.

        Raises:
            FeedError: A row cannot be read, or workers die or hang again and again; with what is known about it.
        """
        self._batches = iter(self.loader)
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
        self._work = work
        while self._error is None and len(self._ahead) < most and not work.is_done():
            try:
                batch = self._fetch()
            except FeedError as error:  # all processes have to hear of it at the same place: when it is due
                self._error = error
                break
            self._ahead.append(batch)
            fetched.append(batch)
        self._work = None
        return fetched

    def _fetch(self) -> Batch:
        try:
            batch = next(self._batches)
        except DataError as error:  # all processes have to stop for it
            raise FeedError(f"{str(error).removesuffix('.')}. The run stops here.") from error
        self.num_made += 1
        self.pieces.is_filling = False
        return batch

    def _open_pieces(self, queue: PieceQueue) -> TakePiece:
        self.pieces.open(queue)

        def take(position: int) -> Any:
            return self.pieces.take(position, self._work)

        return take

    def _collate(self, items: Any) -> Batch:
        while True:
            attempt = Attempt()
            with attempt:
                attempt.made = self._collator(items)
            if attempt.failure is None:
                batch: Batch = pin_batch(attempt.made) if self._pins_memory else attempt.made
                return batch
            self.pieces.recover(describe_failure(attempt.failure, "the next batch of the stream", str))

    def watching(self, what: str) -> AbstractContextManager[None]:
        """Report where everything is if the block takes longer than `data_timeout_seconds`."""
        return self.pieces.watching(what)

    @property
    def worker_processes(self) -> list[int]:
        """Numbers of the worker processes there are."""
        return self.pieces.worker_processes

    def close(self) -> None:
        """Let all workers go."""
        self.pieces.close()

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
        self.loader.load(json.loads(path.read_text(encoding="utf-8")))


class StreamEpochs(TrainerCallback):
    """Says how many passes over the rows are done; Trainer takes all steps of a stream for one."""

    def __init__(self, feed: StreamFeed) -> None:
        self._feed = feed

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Correct the number before it is logged."""
        state.epoch = self._feed.loader.progress


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
