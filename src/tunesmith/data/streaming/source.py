"""All that is streamed in a run: data sets, their shards, and the stream of each process."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from tunesmith.data.encoding import ChunkEncoder
from tunesmith.data.sources import DatasetSpec
from tunesmith.data.streaming.contents import describe_file, modification_time
from tunesmith.data.streaming.cursors import describe_place
from tunesmith.data.streaming.mixing import MixedReader, Mixing
from tunesmith.data.streaming.pieces import PIECE_ROWS, OpenPieces, PieceEncoder, PieceQueue, encode_here
from tunesmith.data.streaming.places import FIRST_FILE, split_row_id
from tunesmith.data.streaming.shards import Shard, Unit, cut_shards, deal, find_unit
from tunesmith.data.streaming.shuffling import ShuffledRows
from tunesmith.data.streaming.windows import ExampleStream, Item, pack_cut, pack_whole

logger = logging.getLogger(__name__)

_SHOWN = 8
"""Differences of one data set that are listed."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How rows are streamed; a run goes on from a checkpoint with the same options only."""

    seed: int
    is_shuffled: bool
    buffer_size: int
    window_rows: int
    """Raw rows that are packed together."""

    mixing: Mixing
    packing: str
    """`none`, `whole` rows in a pack, or `cut` documents."""

    capacity: int
    """Tokens that a pack may hold."""

    epochs: int | None
    """Passes over the rows after which the stream ends; `None` for one without end."""

    piece_rows: int = PIECE_ROWS
    """Raw rows that are encoded together, which has no part in what comes out."""


@dataclass(frozen=True, eq=False)
class StreamSource:
    """The data sets of a stream.

    Args:
        encoders: One per data set.
        options: How they are streamed.
    """

    encoders: tuple[ChunkEncoder, ...]
    options: StreamOptions

    @property
    def specs(self) -> list[DatasetSpec]:
        """The data sets."""
        return [encoder.spec for encoder in self.encoders]

    @property
    def encoder(self) -> PieceEncoder:
        """What makes examples of their rows."""
        return PieceEncoder(self.encoders, {number: file for number, (_, file) in self.files().items()})

    def files(self) -> dict[int, tuple[DatasetSpec, Path]]:
        """Return every file with its data set, by number."""
        return dict(enumerate(((spec, file) for spec in self.specs for file in spec.files), start=FIRST_FILE))

    def shards(self, num_processes: int) -> list[list[Shard]]:
        """Return the shards of each data set."""
        found: list[list[Shard]] = []
        first_file = FIRST_FILE
        for spec in self.specs:
            found.append(cut_shards(spec, first_file, num_processes))
            first_file += len(spec.files)
        return found

    def open(self, process: int, num_processes: int, open_pieces: OpenPieces | None = None) -> ExampleStream:
        """Return the stream of one process, at its beginning.

        Args:
            process: Its number.
            num_processes: Of the run.
            open_pieces: Has rows encoded; the process itself does so when not given.
        """
        options = self.options
        own = [deal(shards, process, num_processes) for shards in self.shards(num_processes)]
        reader = MixedReader(own, options.mixing, seed=options.seed, process=process, is_shuffled=options.is_shuffled)
        seed = (options.seed, process, 2) if options.is_shuffled else None
        queue = PieceQueue(
            ShuffledRows(reader, options.buffer_size, seed),
            window_rows=options.window_rows,
            piece_rows=options.piece_rows,
            epochs=options.epochs,
        )
        packs = {
            "whole": partial(pack_whole, capacity=options.capacity),
            "cut": partial(pack_cut, capacity=options.capacity),
        }
        return ExampleStream(
            queue,
            open_pieces or encode_here(self.encoder),
            packs.get(options.packing),
            window_pieces=-(-options.window_rows // options.piece_rows),
            num_sets=len(self.encoders),
        )

    def fingerprint(self, num_processes: int) -> dict[str, Any]:
        """Return what has to be the same for a place in a stream to mean the same, as JSON values."""
        options = self.options
        return {
            "processes": num_processes,
            "sets": [_describe_set(spec) for spec in self.specs],
            "modified": [[modification_time(file) for file in spec.files] for spec in self.specs],
            "seed": options.seed,
            "is_shuffled": options.is_shuffled,
            "buffer_size": options.buffer_size,
            "window_rows": options.window_rows,
            "mixing": [options.mixing.strategy, *options.mixing.probabilities],
            "packing": options.packing,
        }

    def find_row(self, row_id: int) -> tuple[DatasetSpec, Path, Unit, int]:
        """Return data set, file, unit and place of a row."""
        number, place = split_row_id(row_id)
        if number not in self.files():
            raise KeyError(f"no example was made of row {row_id}")
        spec, file = self.files()[number]
        return spec, file, find_unit(file), place

    def describe_row(self, row_id: int) -> str:
        """Return where a row comes from: `data set chats, file chats.jsonl, line 17`."""
        spec, file, unit, place = self.find_row(row_id)
        return f"data set {spec.name}, file {file}, {describe_place(file, unit, place)}"

    def peek(self, count: int) -> list[Item]:
        """Return the first items that a process without companions reads, of one pass over the rows at most."""
        stream = replace(self, options=replace(self.options, epochs=1)).open(0, 1)
        found: list[Item] = []
        while len(found) < count and (item := stream.next_item()) is not None:
            found.append(item)
        return found


def differences(fingerprint: Mapping[str, Any], recorded: Mapping[str, Any]) -> Sequence[str]:
    """Return one line per part of a fingerprint that is not as recorded."""
    now = {name: value for name, value in fingerprint.items() if name not in ("sets", "modified")}
    found = _compare(recorded, now, "")
    sets, old_sets = fingerprint["sets"], recorded.get("sets", [])
    if len(sets) != len(old_sets):
        return [*found, f"there were {len(old_sets)} data sets and are {len(sets)}"]
    for own, old in zip(sets, old_sets, strict=True):
        lines = _compare(old, own, f"data set {own['name']}: ")
        found += lines[:_SHOWN]
        if len(lines) > _SHOWN:
            found.append(f"data set {own['name']}: and {len(lines) - _SHOWN:,} more")
    return found


def note_rewritten(fingerprint: Mapping[str, Any], recorded: Mapping[str, Any]) -> None:
    """Tell the user of files with another time of modification than was recorded, while nothing else differs."""
    before, now = (chain.from_iterable(part.get("modified", ())) for part in (recorded, fingerprint))
    count = sum(old != own for old, own in zip(before, now, strict=False))
    if count:
        logger.warning(
            "%d of the files that are streamed were copied, or written after the checkpoint: their sizes and samples "
            "of their content are as they were, so the run goes on. Rows that were edited since come as they are now.",
            count,
        )


def _describe_set(spec: DatasetSpec) -> dict[str, Any]:
    """Return what a data set is and how its rows are read, as JSON values.

    Folders may move, so only names and contents of files count. Whether a run stops for bad rows or leaves them out
    does not: who was stopped by one goes on without it.
    """
    return {
        "name": Path(spec.name).name,  # one that is a place may be another place now
        "formatting": spec.formatting,
        "ranking": spec.ranking,
        **{f"columns.{key}": column for key, column in asdict(spec.columns).items()},
        **{f"tags.{key}": tag for key, tag in asdict(spec.tags).items()},
        "row_variables": dict(spec.row_variables),
        "stringify_values": spec.stringify_values,
        "turn_order_policy": "merge" if spec.turn_order_policy == "merge" else "skip or error",
        "number of files": len(spec.files),
        **{f"file {place}": describe_file(file) for place, file in enumerate(spec.files, start=1)},
    }


def _compare(before: Mapping[str, Any], now: Mapping[str, Any], where: str) -> list[str]:
    """Return one line per value that differs."""
    return [
        f"{where}{name} {_change(before.get(name), value)}" for name, value in now.items() if before.get(name) != value
    ]


def _change(before: object, now: object) -> str:
    match before, now:
        case [str(name), int(size), str()], [str(same), int(still), str()] if (name, size) == (same, still):
            return f"is {_shown(now)} as it was, with other content: rows were changed in place"
    return f"was {_shown(before)} and is {_shown(now)}"


def _shown(value: object) -> str:
    """Return a value in words; files with their size."""
    match value:
        case [str(name), int(size)] | [str(name), int(size), str()]:
            return f"{name!r} ({size:,} bytes)"
        case None:
            return "not there"
        case _:
            return repr(value)
