"""Which rows of a data set are read: all of them, the first ones, or a random sample."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from tunesmith.data.sources import DatasetSpec, RawRow, read_rows


@dataclass(frozen=True, slots=True)
class RawChunk:
    """Rows that are encoded together."""

    first_row: int
    """Number of the first row in its data set, in the order of reading."""

    rows: Sequence[RawRow]


def select_chunks(spec: DatasetSpec, chunk_rows: int, *, max_rows: int | None, seed: int) -> Iterator[RawChunk]:
    """Read the rows of a data set that the run uses, in the order of its files.

    Args:
        spec: The data set. `num_samples` draws so many of its rows at random; all come at least once, and some more
            often, if there are fewer.
        chunk_rows: Rows in each chunk but the last.
        max_rows: Rows to take at most, after sampling; all of them when `None`.
        seed: Start of the random numbers of the sample.
    """
    chunks: Iterable[list[RawRow]] = read_rows(spec, chunk_rows)
    if spec.num_samples is None and max_rows is None:
        first = 0
        for rows in chunks:
            yield RawChunk(first, rows)
            first += len(rows)
        return
    selected: Iterator[RawRow] = chain.from_iterable(chunks)
    if spec.num_samples is not None:
        total = sum(len(rows) for rows in read_rows(spec, chunk_rows))
        selected = _repeat(selected, sample_counts(total, spec.num_samples, seed))
    selected = islice(selected, None if max_rows is None else min(max_rows, sys.maxsize))
    first = 0
    while rows := list(islice(selected, chunk_rows)):
        yield RawChunk(first, rows)
        first += len(rows)


def sample_counts(total: int, num_samples: int, seed: int) -> Counter[int]:
    """Return how often each of `total` rows is used so that `num_samples` are: none twice before all came once."""
    rounds, rest = divmod(num_samples, total) if total else (0, 0)
    counts = Counter(dict.fromkeys(range(total), rounds)) if rounds else Counter()
    counts.update(np.random.default_rng(seed).permutation(total)[:rest].tolist())
    return counts


def _repeat(rows: Iterable[RawRow], counts: Counter[int]) -> Iterator[RawRow]:
    for number, row in enumerate(rows):
        for _ in range(counts[number]):
            yield row
