"""What an encoder is told and what it gives back."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Truncation = Literal["prompt_cut", "answer_cut", "end_marker_lost", "turns_dropped"]
"""What a row that was too long has lost."""

NOTHING_LOST: frozenset[Truncation] = frozenset()


@dataclass(frozen=True, slots=True)
class EncodingOptions:
    """Settings that decide ids and learnt positions; part of the cache key."""

    stage: str
    cutoff_len: int
    """Largest number of tokens of a row."""

    train_on_prompt: bool = False
    mask_history: bool = False
    packing: bool = False


class EncodedRow(NamedTuple):
    """Token ids of one row and the positions that are learnt."""

    input_ids: NDArray[np.int32]
    """Shape [tokens]."""

    trained_spans: NDArray[np.int32]
    """Half-open ranges of learnt positions, flattened: [start0, end0, start1, end1 ...], ascending and disjoint."""

    truncation: frozenset[Truncation] = NOTHING_LOST
    prompt_end: int = 0
    """Where the first completion begins, in rows that have completions; else 0. See `data.batches.PairExample`."""

    chosen_end: int = 0
    """Where the first completion ends."""

    signal: float = 0.0
    """Margin of a pair, or 1 for a desirable completion."""
