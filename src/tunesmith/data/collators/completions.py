"""Rows with completions to batches: the sequences of a batch laid out as any others, and what predicts what in them.

A pair `[prompt | chosen | rejected]` becomes two sequences that each have the prompt; a row of stage `kto` becomes one,
and one more in the batch for the KL term. Sequences are laid out by the collators of single rows, so that padding,
positions and borders are made in one place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tunesmith.data.batches import BatchLayout, Example, PairExample
from tunesmith.data.collators.flat import FlatCollator
from tunesmith.data.collators.padded import PaddedCollator


@dataclass(frozen=True, slots=True)
class PairCollator:
    """Makes batches of pairs, as sequences in the order chosen 0, rejected 0, chosen 1, rejected 1 ...

    Example:
        The pair `[1 2 | 3 4 | 5]`, padded with -8::

            input_ids                completion_positions  0+1 0+2 4+1   (rows have 4 places)
            1  2  3  4               completion_labels     3   4   5
            1  2  5 -8               completion_sequences  0   0   1
    """

    layout: BatchLayout
    rows_to_batch: PaddedCollator | FlatCollator
    """Lays out single rows."""

    def __call__(self, rows: Sequence[Any]) -> Any:
        """Make one batch of pairs, or of packs of pairs.

        Args:
            rows: Of `PairExample`, or of lists of them that share a packed row.
        """
        packs = _packs(rows)
        lines = [[part for pair in pack for part in split_pair(pair)] for pack in packs]
        batch = _collate(self, lines, are_packed=any(isinstance(row, list) for row in rows))
        return {**batch, **describe_rows([pair for pack in packs for pair in pack])}


@dataclass(frozen=True, slots=True)
class FeedbackCollator:
    """Makes batches of rated completions; `mismatched` holds the same prompts with completions of other rows."""

    layout: BatchLayout
    rows_to_batch: PaddedCollator | FlatCollator

    def __call__(self, rows: Sequence[Any]) -> Any:
        """Make one batch of rows, or of packs of rows.

        Args:
            rows: Of `PairExample` as `[prompt | completion | mismatched completion]`, or of lists of them.
        """
        packs = _packs(rows)
        are_packed = any(isinstance(row, list) for row in rows)
        halves = [[split_pair(row) for row in pack] for pack in packs]
        own, other = (
            _collate(self, [[half[place] for half in pack] for pack in halves], are_packed=are_packed)
            for place in (0, 1)
        )
        flat = [row for pack in packs for row in pack]
        described = describe_rows(flat)
        reference = described.pop("reference_log_probabilities", None)
        if reference is not None:
            own["reference_log_probabilities"] = reference[::2].contiguous()
            other["reference_log_probabilities"] = reference[1::2].contiguous()
        other["item_weights"] = described["item_weights"]
        other["signals"] = described["signals"]
        return {**own, **described, "mismatched": other}


def split_pair(pair: PairExample) -> tuple[Example, Example]:
    """Return the two sequences of a pair, each with the whole prompt."""
    ids, spans = pair["input_ids"], pair["trained_spans"].reshape(-1, 2)
    prompt_end, chosen_end = pair["prompt_end"], pair["chosen_end"]
    is_chosen = spans[:, 0] < chosen_end
    shift = chosen_end - prompt_end
    chosen = Example(input_ids=ids[:chosen_end], trained_spans=spans[is_chosen].reshape(-1), row_id=pair["row_id"])
    rejected = Example(
        input_ids=np.concatenate([ids[:prompt_end], ids[chosen_end:]]),
        trained_spans=(spans[~is_chosen] - shift).reshape(-1),
        row_id=pair["row_id"],
    )
    return chosen, rejected


def locate_completions(lines: Sequence[Sequence[Example]], starts: Sequence[int]) -> dict[str, torch.Tensor]:
    """Return what predicts what, for sequences whose tokens stand one after the other.

    Args:
        lines: Sequences, line by line.
        starts: Index of the first token of each line in the flattened batch.
    """
    positions: list[NDArray[np.int64]] = []
    labels: list[NDArray[np.int32]] = []
    counts: list[int] = []
    last: list[int] = []
    for line, line_start in zip(lines, starts, strict=True):
        start = line_start
        for sequence in line:
            ids, found = sequence["input_ids"], 0
            for first, end in sequence["trained_spans"].reshape(-1, 2).tolist():
                begin = max(first, 1)
                positions.append(np.arange(start + begin - 1, start + end - 1, dtype=np.int64))
                labels.append(ids[begin:end])
                found += max(end - begin, 0)
            counts.append(found)
            start += len(ids)
            last.append(start - 1)
    nothing = np.zeros(0, dtype=np.int64)
    return {
        "completion_positions": torch.from_numpy(np.concatenate([nothing, *positions])),
        "completion_labels": torch.from_numpy(np.concatenate([nothing, *labels], dtype=np.int64)),
        "completion_sequences": torch.from_numpy(np.repeat(np.arange(len(counts), dtype=np.int64), counts)),
        "last_positions": torch.tensor(last, dtype=torch.int64),
    }


def flatten_packs(rows: Sequence[Any]) -> list[PairExample]:
    """Return the rows of a micro-batch one by one, whether they come in packs or not."""
    return [row for pack in _packs(rows) for row in pack]


def _packs(rows: Sequence[Any]) -> list[list[PairExample]]:
    return [row if isinstance(row, list) else [row] for row in rows]


def _collate(
    collator: PairCollator | FeedbackCollator, lines: list[list[Example]], *, are_packed: bool
) -> dict[str, Any]:
    """Lay out the sequences: packs stay together, other sequences get a line each."""
    if not are_packed:
        lines = [[sequence] for line in lines for sequence in line]
    batch: dict[str, Any] = dict(collator.rows_to_batch([line if are_packed else line[0] for line in lines]))
    if collator.layout == "flat":
        starts = np.cumsum([0, *(sum(len(sequence["input_ids"]) for sequence in line) for line in lines)])[:-1].tolist()
    else:
        starts = [number * batch["input_ids"].shape[1] for number in range(len(lines))]
    return {**batch, **locate_completions(lines, starts)}


def describe_rows(rows: Sequence[PairExample]) -> dict[str, torch.Tensor]:
    """Return what is known of each row of a batch beside its tokens."""
    described = {
        "signals": torch.tensor([row["signal"] for row in rows], dtype=torch.float32),
        "item_weights": torch.tensor([float(len(row["trained_spans"]) > 0) for row in rows]),
        "row_ids": torch.tensor([row["row_id"] for row in rows], dtype=torch.int64),
    }
    if rows and all("reference_log_probabilities" in row for row in rows):
        references = np.concatenate([row["reference_log_probabilities"] for row in rows], dtype=np.float32)
        described["reference_log_probabilities"] = torch.from_numpy(references)
    return described
