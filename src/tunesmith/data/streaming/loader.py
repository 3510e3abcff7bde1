"""Batches of one process out of a stream, made in the process itself or ahead of time by workers.

The rows of a process are shared out among its streams, whose batches come in turn. Which worker reads which streams has
no part in that: with fewer workers each reads several of them, and all rows come in the same order.
"""

import itertools
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tunesmith.data.account import Tally
from tunesmith.data.batches import Batch, Example
from tunesmith.data.collators import Collator
from tunesmith.data.loading.attempts import Attempt, Failure
from tunesmith.data.loading.transport import BatchSlots, receive
from tunesmith.data.streaming.source import StreamSource, differences, note_rewritten
from tunesmith.data.streaming.windows import ExampleStream, Item
from tunesmith.errors import CheckpointError
from tunesmith.runtime.child_signals import leave_numbers_to_us, start_workers
from tunesmith.runtime.ranks import Ranks

_FILLER_ROW_ID = -1
_PREFETCH = 2
"""Of PyTorch's loader where nobody says otherwise."""


NoteRow = Callable[[int, int | None], None]
"""Number of a worker, and the id of the row that it is at, if it is at one."""


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """Where a stream stands behind a batch. Travels with the batch: what is fetched is not yet trained on."""

    state: dict[str, Any]
    tallies: Sequence[Mapping[str, Any]]
    """What became of the rows read so far, per data set; see `Tally.to_dict`."""

    progress: float
    """About how many epochs are read."""

    is_filler: bool
    """Whether the batch is only there so that all processes take the same number of steps. It has no labels."""

    seconds: float
    """What making the batch took."""

    packed_items: bytes
    """What the batch was made of, should it have to be made in parts. Nobody else takes the time to read it."""

    stream: int = 0
    """Number of the stream in this process."""

    num_received: int = 0
    """Batches of all streams of this process up to this one."""

    def load_items(self) -> list[Item]:
        """Return what the batch was made of."""
        items: list[Item] = pickle.loads(self.packed_items)  # noqa: S301 - from a worker of this run
        return items


class WorkerLink(NamedTuple):
    """What workers and the process that they work for have in common."""

    slots: BatchSlots
    note_row: NoteRow | None


@dataclass(slots=True)
class _Reached:
    """Up to where batches were fetched, which is further than up to where they were used."""

    states: list[dict[str, Any] | None]
    received: int


class StreamLoader:
    """Batches of this process, and the place behind those that were used.

    Iterating begins behind the last batch that was handed to `advance`, `go_on` behind the last that was fetched. Both
    never end: a stream that does gives fillers from then on, since other processes may have rows left.

    Args:
        source: What is streamed.
        collator: Makes a batch of rows.
        batch_size: Rows (or packs) of a batch.
        ranks: Place of this process in the run.
        num_workers: Processes that make batches ahead; 0 makes them here.
        num_streams: Among how many streams the rows of this process are shared out; one for each worker when not given.
        drop_last: Leave out the last rows of a stream that ends if they do not fill a batch.
        options: Further options of `torch.utils.data.DataLoader`, without effect where there are no workers.
    """

    def __init__(
        self,
        source: StreamSource,
        collator: Collator,
        *,
        batch_size: int,
        ranks: Ranks,
        num_workers: int = 0,
        num_streams: int | None = None,
        drop_last: bool = False,
        **options: Any,
    ) -> None:
        self._source = source
        self._ranks = ranks
        self.num_streams = num_streams or max(1, source.resolve_workers(num_workers, ranks.world_size))
        self.num_workers = find_workers(self.num_streams, num_workers)
        self._make = (collator, batch_size, drop_last)
        self._options = options
        self._states: list[dict[str, Any] | None] = [None] * self.num_streams
        self._progress = [0.0] * self.num_streams
        self._tallies: list[Sequence[Mapping[str, Any]]] = [()] * self.num_streams
        self._num_received = 0
        self._reached = _Reached(list(self._states), 0)
        self._link: WorkerLink | None = None
        self.workers: Sequence[BaseProcess] = ()
        """Processes that make batches, once the first was asked for."""

        self.note_row: NoteRow | None = None
        """Told by the workers which row they are at."""

    @property
    def num_consumers(self) -> int:
        """Consumers over all processes."""
        return self.num_streams * self._ranks.world_size

    @property
    def progress(self) -> float:
        """About how many epochs of the rows of this process were read."""
        return sum(self._progress) / len(self._progress)

    @property
    def tallies(self) -> list[Tally]:
        """What became of the rows that this process has read, per data set."""
        totals = [Tally() for _ in self._source.encoders]
        for own in self._tallies:
            for total, values in zip(totals, own, strict=False):  # nothing yet from streams that gave no batch
                total.add(Tally(**values))
        return totals

    def __iter__(self) -> Iterator[Batch | Failure]:
        self.rewind()
        return self.go_on()

    def rewind(self) -> None:
        """Go back behind the last batch that was used."""
        self._reached = _Reached(list(self._states), self._num_received)

    def limit_workers(self, most: int) -> None:
        """Use fewer workers from the next call of `go_on`; the order of rows stays the same."""
        self.num_workers = find_workers(self.num_streams, most)

    def go_on(self) -> Iterator[Batch | Failure]:
        """Return the batches behind the last that was fetched. Workers there were before are to be ended before.

        Where one cannot be made, what went wrong comes instead of it, and nothing after it.

        Raises:
            OSError: No more processes, memory or descriptors are to be had for workers.
        """
        # Worker 0 is asked first. After going on, that is the one that has the stream whose turn it is.
        turn = self._reached.received % self.num_streams
        order = [(turn + stream) % self.num_streams for stream in range(self.num_streams)]
        return self._deliver(self._start(order), order)

    def _deliver(
        self, made: Iterator[tuple[Batch, StreamPlace] | Failure], order: Sequence[int]
    ) -> Iterator[Batch | Failure]:
        reached, ended = self._reached, set[int]()
        for stream, delivered in zip(itertools.cycle(order), made):
            if isinstance(delivered, Failure):
                yield delivered
                return
            batch, place = receive(delivered)
            reached.received += 1
            reached.states[stream] = place.state
            if place.is_filler:
                ended.add(stream)
            if not place.is_filler or len(ended) == self.num_streams:
                batch["stream_place"] = replace(place, stream=stream, num_received=reached.received)
                yield batch

    def advance(self, batch: Batch) -> bool:
        """Take note that a batch is used now, and return whether it has rows of the stream."""
        place: StreamPlace = batch["stream_place"]
        self._states[place.stream] = place.state
        self._progress[place.stream] = place.progress
        self._tallies[place.stream] = place.tallies
        self._num_received = place.num_received
        return not place.is_filler

    def state(self) -> dict[str, Any]:
        """Return where the batch behind the last used one is, as JSON values."""
        return {
            "fingerprint": self._source.fingerprint(self.num_consumers),
            "received": self._num_received,
            "streams": [None if state is None else _to_json(state) for state in self._states],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go to where `state` was taken.

        Raises:
            CheckpointError: The files, the number of readers or what decides the order has changed.
        """
        fingerprint, recorded = self._source.fingerprint(self.num_consumers), state["fingerprint"]
        found = differences(fingerprint, recorded)
        if found:
            listed = "\n".join(f"  {difference}" for difference in found)
            raise CheckpointError(
                f"This run streams other rows, or in another order, than the one that wrote the checkpoint:\n{listed}\n"
                "Set them as they were (consumers are processes times dataloader_num_workers)."
            )
        if self._ranks.is_main:
            note_rewritten(fingerprint, recorded)
        self._num_received = state["received"]
        self._states = [None if own is None else _from_json(own) for own in state["streams"]]
        self._tallies = [() if own is None else own["tallies"] for own in self._states]

    def _start(self, order: Sequence[int]) -> Iterator[tuple[Batch, StreamPlace] | Failure]:
        first = self._ranks.rank * self.num_streams
        tasks = [(first + stream, self._reached.states[stream]) for stream in order]
        self.workers = ()
        if not self.num_workers:
            return iter(_StreamedBatches(self._source, self._make, tasks, self.num_consumers))
        self._link = WorkerLink(
            BatchSlots(self.num_workers, self._options.get("prefetch_factor") or _PREFETCH), self.note_row
        )
        batches = _StreamedBatches(self._source, self._make, tasks, self.num_consumers, self._link)
        with leave_numbers_to_us():
            loader = DataLoader(
                batches,
                batch_size=None,
                num_workers=self.num_workers,
                # Its own generator, or starting a loader would draw from the one that dropout draws from.
                generator=torch.Generator().manual_seed(0),
                **self._options,
            )
        batches_of_workers, self.workers = start_workers(loader)
        return batches_of_workers


def find_workers(num_streams: int, most: int) -> int:
    """Return how many workers can take turns with the streams: the largest divisor of their number up to `most`.

    A loader asks its workers in turn. With as many streams for each, the one asked has the stream whose turn it is.

    Example:
        6 streams and at most 5 workers: 3, which read two streams each.
    """
    return max((number for number in range(1, most + 1) if num_streams % number == 0), default=0)


class _StreamedBatches(IterableDataset[tuple[Batch, StreamPlace] | Failure]):
    """What one worker does: it takes the tasks of its number, in turn."""

    def __init__(
        self,
        source: StreamSource,
        make: tuple[Collator, int, bool],
        tasks: Sequence[tuple[int, dict[str, Any] | None]],
        num_consumers: int,
        link: WorkerLink | None = None,
    ) -> None:
        self._source = source
        self._make = make
        self._tasks = tasks
        self._num_consumers = num_consumers
        self._link = link

    def __iter__(self) -> Iterator[tuple[Batch, StreamPlace] | Failure]:
        worker = get_worker_info()
        number, of = (0, 1) if worker is None else (worker.id, worker.num_workers)
        attempt, link = Attempt(), self._link

        def note_row(row_id: int | None) -> None:
            attempt.row = row_id
            if link is not None and link.note_row is not None:
                link.note_row(number, row_id)

        streams = [self._read(*task, note_row) for task in self._tasks[number::of]]
        for stream in itertools.cycle(streams):
            with attempt:
                batch, place = next(stream)
                attempt.made = (batch, place) if link is None else link.slots.send(batch, number, place)
            yield attempt.failure or attempt.made
            if attempt.failure is not None:
                return

    def _read(
        self, consumer: int, state: dict[str, Any] | None, note_row: Callable[[int | None], None]
    ) -> Iterator[tuple[Batch, StreamPlace]]:
        started = time.perf_counter()
        stream = self._source.open(consumer, self._num_consumers, note_row)
        if state is not None:
            stream.load(state)
        collator, batch_size, drop_last = self._make
        while items := _next_items(stream, batch_size):
            note_row(None)
            if len(items) == batch_size or not drop_last:
                batch = collator(items)
                yield batch, _build_place(stream, items, started)
                started = time.perf_counter()
        filler = _build_filler(self._source)
        while True:
            batch = collator([filler])
            yield batch, _build_place(stream, [filler], started, is_filler=True)
            started = time.perf_counter()


def _build_place(
    stream: ExampleStream, items: Sequence[Item], started: float, *, is_filler: bool = False
) -> StreamPlace:
    packed = pickle.dumps(items, protocol=pickle.HIGHEST_PROTOCOL)
    seconds = time.perf_counter() - started
    return StreamPlace(stream.state(), stream.tallies, stream.progress, is_filler, seconds, packed)


def _next_items(stream: ExampleStream, count: int) -> list[Item]:
    items: list[Item] = []
    while len(items) < count and (item := stream.next_item()) is not None:
        items.append(item)
    return items


def _build_filler(source: StreamSource) -> Item:
    """Return a row without labels; any row of the stream will do."""
    item = source.peek(1)[0]
    example: Example = (item[0] if isinstance(item, list) else item).copy()
    example["trained_spans"] = np.zeros(0, dtype=np.int32)
    example["row_id"] = _FILLER_ROW_ID
    return [example] if isinstance(item, list) else example


def _to_json(state: Mapping[str, Any]) -> dict[str, Any]:
    carried = [
        {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in example.items()}
        for example in state["carried"]
    ]
    return {**state, "carried": carried}


def _from_json(state: Mapping[str, Any]) -> dict[str, Any]:
    carried = [
        {key: np.array(value, dtype=np.int32) if isinstance(value, list) else value for key, value in example.items()}
        for example in state["carried"]
    ]
    return {**state, "carried": carried}
