"""Which rows of a data set are read: all of them, the first ones, or a random sample."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from tunesmith.data.sources import DatasetSpec, RawRow, read_rows


@dataclass(frozen=True, slots=True)
class RawChunk:
    """Rows that are encoded together."""

    first_row: int
    """Number of the first row in its data set, in the order of reading."""

    rows: Sequence[RawRow]


def select_chunks(spec: DatasetSpec, chunk_rows: int, *, seed: int) -> Iterator[RawChunk]:
    """Read the rows of a data set that the run uses, each once, in the order of its files.

    Args:
        spec: The data set. `num_samples` draws so many of its rows at random, or all if there are no more; how often
            each is used is `count_uses`. `max_rows` caps the sample, or takes the first rows where there is none.
        chunk_rows: Rows in each chunk but the last.
        seed: Start of the random numbers of the sample.
    """
    chunks: Iterable[list[RawRow]] = read_rows(spec, chunk_rows)
    if spec.num_samples is None and spec.max_rows is None:
        first = 0
        for rows in chunks:
            yield RawChunk(first, rows)
            first += len(rows)
        return
    selected: Iterator[RawRow] = chain.from_iterable(chunks)
    if spec.num_samples is not None:
        total = sum(len(rows) for rows in read_rows(spec, chunk_rows))
        counts = sample_counts(total, _sample_size(spec, spec.num_samples), seed)
        selected = (row for number, row in enumerate(selected) if counts[number])
    elif spec.max_rows is not None:
        selected = islice(selected, min(spec.max_rows, sys.maxsize))
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


def count_uses(spec: DatasetSpec, num_rows: int, seed: int) -> NDArray[np.int64] | None:
    """Return how often each row that `select_chunks` gave is used.

    Args:
        spec: The data set.
        num_rows: How many rows were given.
        seed: Start of the random numbers of the sample.

    Returns:
        Uses of each row in order. Shape [rows]. Nothing where each is used once.
    """
    wanted = num_rows if spec.num_samples is None else _sample_size(spec, spec.num_samples)
    if wanted <= num_rows:
        return None
    counts = sample_counts(num_rows, wanted, seed)
    return np.array([counts[number] for number in range(num_rows)], dtype=np.int64)


def _sample_size(spec: DatasetSpec, num_samples: int) -> int:
    return num_samples if spec.max_rows is None else min(num_samples, spec.max_rows)
