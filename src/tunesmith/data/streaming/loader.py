"""Batches of one process out of a stream, made in the process itself or ahead of time by workers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tunesmith.data.account import Tally
from tunesmith.data.batches import Batch, Example
from tunesmith.data.collators import Collator
from tunesmith.data.streaming.source import StreamSource, differences
from tunesmith.data.streaming.windows import ExampleStream, Item
from tunesmith.errors import CheckpointError
from tunesmith.runtime.child_signals import start_workers
from tunesmith.runtime.ranks import Ranks

_FILLER_ROW_ID = -1


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

    stream: int = 0
    """Number of the stream in this process."""

    num_received: int = 0
    """Batches of all streams of this process up to this one."""


class StreamLoader:
    """Batches of this process, and the place behind those that were used.

    Iterating begins behind the last batch that was handed to `advance`. It never ends: a stream that does gives fillers
    from then on, since other processes may have rows left.

    Args:
        source: What is streamed.
        collator: Makes a batch of rows.
        batch_size: Rows (or packs) of a batch.
        ranks: Place of this process in the run.
        num_workers: Processes that make batches ahead; 0 makes them here.
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
        drop_last: bool = False,
        **options: Any,
    ) -> None:
        self._source = source
        self._ranks = ranks
        self.num_workers = source.resolve_workers(num_workers, ranks.world_size)
        self._num_streams = max(1, self.num_workers)
        self._make = (collator, batch_size, drop_last)
        self._options = options
        self._states: list[dict[str, Any] | None] = [None] * self._num_streams
        self._progress = [0.0] * self._num_streams
        self._tallies: list[Sequence[Mapping[str, Any]]] = [()] * self._num_streams
        self._num_received = 0
        self.workers: Sequence[BaseProcess] = ()
        """Processes that make batches, once the first was asked for."""

    @property
    def num_consumers(self) -> int:
        """Consumers over all processes."""
        return self._num_streams * self._ranks.world_size

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

    def __iter__(self) -> Iterator[Batch]:
        # Worker 0 is asked first. After going on, that is the one whose turn it was.
        turn = self._num_received % self._num_streams
        order = [(turn + worker) % self._num_streams for worker in range(self._num_streams)]
        ended: set[int] = set()
        for number, (batch, place) in enumerate(self._start(order)):
            stream = order[number % self._num_streams]
            if place.is_filler:
                ended.add(stream)
            if not place.is_filler or len(ended) == self._num_streams:
                batch["stream_place"] = replace(place, stream=stream, num_received=self._num_received + number + 1)
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
        found = differences(self._source.fingerprint(self.num_consumers), state["fingerprint"])
        if found:
            listed = "\n".join(f"  {difference}" for difference in found)
            raise CheckpointError(
                f"This run streams other rows, or in another order, than the one that wrote the checkpoint:\n{listed}\n"
                "Set them as they were (consumers are processes times dataloader_num_workers)."
            )
        self._num_received = state["received"]
        self._states = [None if own is None else _from_json(own) for own in state["streams"]]
        self._tallies = [() if own is None else own["tallies"] for own in self._states]

    def _start(self, order: Sequence[int]) -> Iterator[tuple[Batch, StreamPlace]]:
        first = self._ranks.rank * self._num_streams
        tasks = [(first + stream, self._states[stream]) for stream in order]
        batches = _StreamedBatches(self._source, self._make, tasks, self.num_consumers)
        if not self.num_workers:
            return iter(batches)
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


class _StreamedBatches(IterableDataset[tuple[Batch, StreamPlace]]):
    """What one worker does: it takes the task of its number."""

    def __init__(
        self,
        source: StreamSource,
        make: tuple[Collator, int, bool],
        tasks: Sequence[tuple[int, dict[str, Any] | None]],
        num_consumers: int,
    ) -> None:
        self._source = source
        self._make = make
        self._tasks = tasks
        self._num_consumers = num_consumers

    def __iter__(self) -> Iterator[tuple[Batch, StreamPlace]]:
        worker = get_worker_info()
        consumer, state = self._tasks[0 if worker is None else worker.id]
        stream = self._source.open(consumer, self._num_consumers)
        if state is not None:
            stream.load(state)
        collator, batch_size, drop_last = self._make
        while items := _next_items(stream, batch_size):
            if len(items) == batch_size or not drop_last:
                yield collator(items), _build_place(stream, is_filler=False)
        filler = _build_filler(self._source)
        while True:
            yield collator([filler]), _build_place(stream, is_filler=True)


def _build_place(stream: ExampleStream, *, is_filler: bool) -> StreamPlace:
    return StreamPlace(stream.state(), stream.tallies, stream.progress, is_filler)


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
