"""Pairs to batches in which each prompt stands once, for attention that knows of branches."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tunesmith.data.batches import PairExample
from tunesmith.data.collators.completions import describe_rows, flatten_packs
from tunesmith.data.collators.padding import lay_end_to_end


class SharedPairCollator:
    """Makes flat batches of pairs as they are stored: `[prompt | chosen | rejected]`, end to end.

    What the attention must know stands in `branch_lengths`; packs of pairs and single pairs are laid out alike. The
    first token of either completion is predicted by the last one of the prompt.

    Example:
        The pair `[1 2 | 3 4 | 5]`::

            input_ids              1  2  3  4  5      branch_lengths        (2, 2, 1)
            position_ids           0  1  2  3  2      completion_positions  1  2  1
            completion_sequences         0  0  1      completion_labels     3  4  5
    """

    def __call__(self, rows: Sequence[Any]) -> Any:
        """Make one batch of shape [1, tokens of all rows].

        Args:
            rows: Of `PairExample`, or of lists of them.
        """
        pairs = flatten_packs(rows)
        ends = list(accumulate(len(pair["input_ids"]) for pair in pairs))
        starts = [0, *ends[:-1]]
        ids, labels_of_rows = lay_end_to_end(pairs, ends[-1])
        predictors, labels, sequences = zip(*map(_locate, pairs, starts, range(len(pairs))), strict=True)
        last = [place for pair, start in zip(pairs, starts, strict=True) for place in _last_places(pair, start)]
        return {
            "input_ids": torch.from_numpy(ids[None]),
            "labels": torch.from_numpy(labels_of_rows[None]),
            "position_ids": torch.from_numpy(np.concatenate([_positions(pair) for pair in pairs])[None]),
            "branch_lengths": tuple(_branches(pair) for pair in pairs),
            "completion_positions": torch.from_numpy(np.concatenate(predictors)),
            "completion_labels": torch.from_numpy(np.concatenate(labels, dtype=np.int64)),
            "completion_sequences": torch.from_numpy(np.concatenate(sequences)),
            "last_positions": torch.tensor(last, dtype=torch.int64),
            **describe_rows(pairs),
        }


def _branches(pair: PairExample) -> tuple[int, int, int]:
    prompt_end, chosen_end = pair["prompt_end"], pair["chosen_end"]
    return prompt_end, chosen_end - prompt_end, len(pair["input_ids"]) - chosen_end


def _last_places(pair: PairExample, start: int) -> tuple[int, int]:
    return start + pair["chosen_end"] - 1, start + len(pair["input_ids"]) - 1


def _positions(pair: PairExample) -> NDArray[np.int64]:
    positions = np.arange(len(pair["input_ids"]), dtype=np.int64)
    positions[pair["chosen_end"] :] -= pair["chosen_end"] - pair["prompt_end"]
    return positions


def _locate(
    pair: PairExample, start: int, number: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Return what predicts what in a pair that begins at a place: positions, labels, numbers of the sequences."""
    spans = pair["trained_spans"].reshape(-1, 2).tolist()
    learnt = np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(max(first, 1), end) for first, end in spans)])
    predictors = np.where(learnt == pair["chosen_end"], pair["prompt_end"], learnt) - 1
    return predictors + start, pair["input_ids"][learnt], 2 * number + (learnt >= pair["chosen_end"])
