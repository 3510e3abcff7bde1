"""Batches of one process out of a stream, and the place behind each of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tunesmith.data.account import Tally
from tunesmith.data.batches import Batch, Example
from tunesmith.data.collators import Collator
from tunesmith.data.streaming.pieces import OpenPieces
from tunesmith.data.streaming.source import StreamSource, differences, note_rewritten
from tunesmith.data.streaming.windows import ExampleStream, Item
from tunesmith.errors import CheckpointError
from tunesmith.runtime.ranks import Ranks

_FILLER_ROW_ID = -1


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """Where a stream stands behind a batch. Goes with the batch: what is fetched is not yet trained on."""

    state: dict[str, Any]
    tallies: Sequence[Mapping[str, Any]]
    """What became of the rows read so far, per data set; see `Tally.to_dict`."""

    progress: float
    """About how many epochs are read."""

    is_filler: bool
    """Whether the batch is only there so that all processes take the same number of steps. It has no labels."""

    items: Sequence[Item]
    """What the batch was made of, should it have to be made in parts."""


class StreamLoader:
    """Batches of this process, and the place behind those that were used.

    Iterating begins behind the last batch that was handed to `advance`, and never ends: a stream that does gives
    fillers from then on, since other processes may have rows left.

    Args:
        source: What is streamed.
        collator: Makes a batch of rows.
        batch_size: Rows (or packs) of a batch.
        ranks: Place of this process in the run.
        drop_last: Leave out the last rows of a stream that ends if they do not fill a batch.
        open_pieces: Has rows encoded; the process itself does so when not given.
    """

    def __init__(
        self,
        source: StreamSource,
        collator: Collator,
        *,
        batch_size: int,
        ranks: Ranks,
        drop_last: bool = False,
        open_pieces: OpenPieces | None = None,
    ) -> None:
        self._source = source
        self._collator = collator
        self._batch_size = batch_size
        self._ranks = ranks
        self._drop_last = drop_last
        self._open_pieces = open_pieces
        self._state: dict[str, Any] | None = None
        self._tallies: Sequence[Mapping[str, Any]] = ()
        self.progress = 0.0
        """About how many epochs of the rows of this process were read."""

    @property
    def tallies(self) -> list[Tally]:
        """What became of the rows that this process has read, per data set."""
        return [Tally(**values) for values in self._tallies] or [Tally() for _ in self._source.encoders]

    def __iter__(self) -> Iterator[Batch]:
        stream = self._source.open(self._ranks.rank, self._ranks.world_size, self._open_pieces)
        if self._state is not None:
            stream.load(self._state)
        while items := _next_items(stream, self._batch_size):
            if len(items) == self._batch_size or not self._drop_last:
                yield self._build(stream, items)
        filler = _build_filler(self._source)
        while True:
            yield self._build(stream, [filler], is_filler=True)

    def _build(self, stream: ExampleStream, items: Sequence[Item], *, is_filler: bool = False) -> Batch:
        batch = self._collator(items)
        batch["stream_place"] = StreamPlace(stream.state(), stream.tallies, stream.progress, is_filler, items)
        return batch

    def advance(self, batch: Batch) -> bool:
        """Take note that a batch is used now, and return whether it has rows of the stream."""
        place: StreamPlace = batch["stream_place"]
        self._state, self._tallies, self.progress = place.state, place.tallies, place.progress
        return not place.is_filler

    def state(self) -> dict[str, Any]:
        """Return where the batch behind the last used one is, as JSON values."""
        return {
            "fingerprint": self._source.fingerprint(self._ranks.world_size),
            "stream": None if self._state is None else _to_json(self._state),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go to where `state` was taken.

        Raises:
            CheckpointError: The files, the number of processes or what decides the order has changed.
        """
        if "stream" not in state:
            raise CheckpointError(
                "The checkpoint was written when the order of streamed rows still depended on the number of workers, "
                "and cannot be gone on from. Begin a new run, from its model if that is to be kept."
            )
        fingerprint, recorded = self._source.fingerprint(self._ranks.world_size), state["fingerprint"]
        found = differences(fingerprint, recorded)
        if found:
            listed = "\n".join(f"  {difference}" for difference in found)
            raise CheckpointError(
                f"This run streams other rows, or in another order, than the one that wrote the checkpoint:\n{listed}\n"
                "Set them as they were."
            )
        if self._ranks.is_main:
            note_rewritten(fingerprint, recorded)
        self._state = None if state["stream"] is None else _from_json(state["stream"])
        self._tallies = () if self._state is None else self._state["tallies"]


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
