"""What stands in encoded rows: the same row twice, and learnt tokens that a reader of the answers would not get."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from tunesmith.data.loading.encoded import EncodedChunk, EncodedRows

_MULTIPLIERS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Rows with the same ids and the same learnt positions as a row before them."""

    count: int
    """Rows that are left out when each different one is kept once."""

    shown: tuple[tuple[int, ...], ...] = ()
    """The first few groups: places of rows that are equal, ascending."""


def find_duplicates(digests: NDArray[np.uint64], num_shown: int = 3) -> Duplicates:
    """Find rows that are there more than once.

    Args:
        digests: Of the rows, see `row_digests`. Shape [rows].
        num_shown: Groups to return.
    """
    unique, first, counts = np.unique(digests, return_index=True, return_counts=True)
    repeated = np.flatnonzero(counts > 1)
    earliest = repeated[np.argsort(first[repeated])][:num_shown]
    shown = tuple(tuple(np.flatnonzero(digests == unique[number]).tolist()) for number in earliest)
    return Duplicates(len(digests) - len(unique), shown)


def row_digests(rows: EncodedRows) -> NDArray[np.uint64]:
    """Return a 64-bit digest of the ids and learnt positions of each row. Shape [rows].

    Among a million rows, two different ones share a digest by chance in one of thirty million data sets.
    """
    digests = [_chunk_digests(chunk) for chunk in rows.chunks]
    return np.concatenate(digests) if digests else np.zeros(0, dtype=np.uint64)


def count_stripped_tokens(
    rows: EncodedRows, tokenizer: PreTrainedTokenizerBase, end_markers: Sequence[str]
) -> Counter[str]:
    """Count the rows whose answers hold a special token other than an end marker, by token.

    Servers decode with `skip_special_tokens=True`: what the model learns to write there, nobody will read.
    """
    ends = set(tokenizer.convert_tokens_to_ids(list(end_markers))) if end_markers else set()
    stripped = np.array(sorted(_special_ids(tokenizer) - ends), dtype=np.int32)
    counts: Counter[str] = Counter()
    for chunk in rows.chunks if len(stripped) else []:
        for token, number in _count_learnt(chunk, stripped):
            counts[str(tokenizer.convert_ids_to_tokens(token))] += number
    return counts


def _special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    added = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | set(tokenizer.all_special_ids)


def _count_learnt(chunk: EncodedChunk, wanted: NDArray[np.int32]) -> Iterator[tuple[int, int]]:
    places = np.flatnonzero(np.isin(chunk.input_ids, wanted) & _learnt_positions(chunk))
    rows = np.searchsorted(chunk.id_borders, places, side="right") - 1
    pairs = np.unique(np.stack([chunk.input_ids[places].astype(np.int64), rows]), axis=1)
    tokens, counts = np.unique(pairs[0], return_counts=True)
    yield from zip(tokens.tolist(), counts.tolist(), strict=True)


def _learnt_positions(chunk: EncodedChunk) -> NDArray[np.bool_]:
    """Return for each id of a chunk whether it is learnt. Shape [tokens]."""
    spans = chunk.trained_spans.reshape(-1, 2) + _repeated_starts(chunk)[:, None]
    steps = np.zeros(len(chunk.input_ids) + 1, dtype=np.int64)
    np.add.at(steps, spans[:, 0], 1)
    np.subtract.at(steps, spans[:, 1], 1)
    return np.cumsum(steps[:-1]) > 0


def _repeated_starts(chunk: EncodedChunk) -> NDArray[np.int64]:
    """Return for each span where its row begins in the chunk. Shape [spans]."""
    return np.repeat(chunk.id_borders[:-1], np.diff(chunk.span_borders) // 2)


def _chunk_digests(chunk: EncodedChunk) -> NDArray[np.uint64]:
    digests = _sums(chunk.input_ids, chunk.id_borders)
    with np.errstate(over="ignore"):
        for extra in (
            _sums(chunk.trained_spans, chunk.span_borders),
            np.diff(chunk.id_borders).astype(np.uint64),
            chunk.chosen_end.astype(np.uint64),
        ):
            digests = _mixed(digests * _MULTIPLIERS[0] + extra)
    return digests


def _sums(values: NDArray[np.int32], borders: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a sum over each row in which every value counts by what it is and where it stands. Shape [rows]."""
    lengths = np.diff(borders)
    places = np.arange(len(values)) - np.repeat(borders[:-1], lengths)
    with np.errstate(over="ignore"):
        mixed = _mixed(values.astype(np.uint64) * _MULTIPLIERS[0] + places.astype(np.uint64) * _MULTIPLIERS[1])
        totals = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(mixed)])
        sums: NDArray[np.uint64] = totals[borders[1:]] - totals[borders[:-1]]
    return sums


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread each number over all 64 bits (the finalizer of SplitMix64, Steele et al. 2014)."""
    mixed: NDArray[np.uint64] = (values ^ (values >> np.uint64(30))) * _MULTIPLIERS[1]
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MULTIPLIERS[2]
    return mixed ^ (mixed >> np.uint64(31))
