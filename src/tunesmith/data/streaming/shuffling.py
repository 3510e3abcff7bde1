"""Raw rows in the order of training: blocks of `buffer_size` rows, each in a random order of its own.

A shuffle buffer that gives one row out for every row it takes in would have to be saved whole to go on exactly. A block
is the same amount of memory, mixes the same distance, and is made again from the place where it begins.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np

from tunesmith.data.streaming.mixing import MixedReader, StreamedRow


class ShuffledRows:
    """Rows of one process, epoch after epoch, block by block.

    Args:
        reader: Rows in the order of reading.
        buffer_size: Rows of a block.
        seed: Start of the random numbers, with that of the process in it; `None` keeps the order of reading.
    """

    def __init__(self, reader: MixedReader, buffer_size: int, seed: tuple[int, ...] | None) -> None:
        self._reader = reader
        self._buffer_size = buffer_size
        self._seed = seed
        self._block_start = reader.state()
        self._given = 0
        self._rows: list[StreamedRow] = []

    def state(self) -> dict[str, Any]:
        """Return where the next row is, as JSON values."""
        return {"block_start": self._block_start, "given": self._given}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go to where `state` was taken: the block is read and shuffled again."""
        self._block_start = state["block_start"]
        self._reader.load(self._block_start)
        self._fill()
        self._given = state["given"]

    @property
    def progress(self) -> float:
        """About how many epochs are done."""
        return self._reader.progress

    @property
    def place_in_run(self) -> tuple[int, int]:
        """Number of the epoch, and of the rows of it that were given out."""
        return self._reader.epoch, self._block_start["drawn"] + self._given

    def take(self, count: int) -> list[StreamedRow]:
        """Return the next rows of this epoch, `count` of them or fewer at the border of a block; none at its end."""
        if self._given == len(self._rows):
            self._begin_block()
        taken = self._rows[self._given : self._given + count]
        self._given += len(taken)
        return taken

    def start_epoch(self) -> None:
        """Begin the next epoch."""
        self._reader.start_epoch()
        self._rows, self._given = [], 0
        self._block_start = self._reader.state()

    def _begin_block(self) -> None:
        self._block_start = self._reader.state()
        self._fill()
        self._given = 0

    def _fill(self) -> None:
        rows = list(islice(self._reader.rows(), self._buffer_size))
        if self._seed is not None:  # no other block of the run begins with these numbers
            rng = np.random.default_rng([*self._seed, self._block_start["epoch"], self._block_start["drawn"]])
            rows = [rows[number] for number in rng.permutation(len(rows)).tolist()]
        self._rows = rows
