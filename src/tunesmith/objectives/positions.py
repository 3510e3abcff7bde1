"""Which hidden states predict which labels: the shift by one, done on positions.

A label at position i is predicted by the hidden state at position i - 1 of the same sample. With two samples in a row::

    input_ids      A0  A1  A2  B0  B1  B2
    position_ids    0   1   2   0   1   2
    labels          .   .  A2   .  B1  B2      (. is the ignored value)
    predicted by            1       3   4

A label on the first token of a sample has nothing before it and is never counted, whatever stands left of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from tunesmith.data.batches import IGNORE_INDEX


@dataclass(frozen=True, slots=True)
class Predictions:
    """Pairs of a position that predicts and the label it should predict."""

    positions: Tensor
    """Indices into the flattened [rows * tokens] hidden states. Shape [items]."""

    labels: Tensor
    """Token ids. Shape [items]."""


def count_predictions(batch: Mapping[str, Tensor]) -> Tensor:
    """Return the number of labels that have a token of the same sample before them. Shape [], int64."""
    return _predicted(batch).sum()


def find_predictions(batch: Mapping[str, Tensor]) -> Predictions:
    """Return all pairs of a batch, row by row from left to right; there may be none."""
    labels = batch["labels"]
    rows, columns = _predicted(batch).nonzero(as_tuple=True)
    return Predictions(positions=rows * labels.shape[1] + columns, labels=labels[rows, columns + 1])


def _predicted(batch: Mapping[str, Tensor]) -> Tensor:
    """True at position i where the label at i + 1 is learnt. Shape [rows, tokens - 1]."""
    predicted = batch["labels"][:, 1:] != IGNORE_INDEX
    if "position_ids" in batch:
        predicted = predicted & (batch["position_ids"][:, 1:] != 0)
    elif "cu_seq_lens_q" in batch:
        starts = batch["cu_seq_lens_q"][1:-1].long()
        predicted = predicted.index_fill(1, starts - 1, value=False)
    return predicted
