"""The only place that pads, and the arrays that both layouts fill from rows."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tunesmith.data.batches import IGNORE_INDEX, Example


def padded_length(lengths: Sequence[int], multiple: int | None = None) -> int:
    """Return the length of the longest row, rounded up to a multiple."""
    longest = max(lengths)
    return longest if multiple is None else -(-longest // multiple) * multiple


def pad_rows(rows: Sequence[NDArray[np.integer]], length: int, value: int) -> NDArray[np.int64]:
    """Stack rows of different lengths, filled up on the right.

    Example:
        Rows `[5 6 7]` and `[8]` to length 4 with value -9: `[[5 6 7 -9] [8 -9 -9 -9]]`.

    Returns:
        New array. Shape [rows, length].
    """
    padded = np.full((len(rows), length), value, dtype=np.int64)
    for line, row in zip(padded, rows, strict=True):
        line[: len(row)] = row
    return padded


def pad_positions(rows: Sequence[NDArray[np.integer]], length: int) -> NDArray[np.int64]:
    """Stack the position ids of packed rows; padding counts from 0 again.

    The padding at the end of a packed row is thereby one more sample of its own. Packed rows have no attention
    mask, so a restart is what keeps it apart from the last real sample.
    """
    padded = np.empty((len(rows), length), dtype=np.int64)
    for line, row in zip(padded, rows, strict=True):
        line[: len(row)] = row
        line[len(row) :] = np.arange(length - len(row))
    return padded


def sample_labels(samples: Sequence[Example], num_tokens: int) -> NDArray[np.int64]:
    """Return the labels of samples that stand end to end: their trained ids, `IGNORE_INDEX` elsewhere.

    The first token of a sample gets no label in any case: in a row of several samples, the shift in the loss
    would make it the target of the last token of another sample; alone it is never a target.

    Args:
        samples: Rows in order.
        num_tokens: Tokens of all samples together.

    Returns:
        New array. Shape [tokens].
    """
    labels = np.full(num_tokens, IGNORE_INDEX, dtype=np.int64)
    write_labels(labels, samples)
    return labels


def write_labels(labels: NDArray[np.int64], samples: Sequence[Example]) -> None:
    """Write the trained ids of samples that stand end to end into labels that are all `IGNORE_INDEX`.

    Args:
        labels: Written to in place; may go on after the last sample. Shape [tokens].
        samples: Rows in order.
    """
    begin = 0
    for sample in samples:
        ids = sample["input_ids"]
        borders = iter(sample["trained_spans"].tolist())
        for start, end in zip(borders, borders, strict=True):
            first = start or 1
            if first < end:
                labels[begin + first : begin + end] = ids[first:end]
        begin += len(ids)


def sample_ids(samples: Sequence[Example]) -> NDArray[np.int64]:
    """Return the token ids of samples end to end. Shape [tokens]."""
    return np.concatenate([sample["input_ids"] for sample in samples], dtype=np.int64)


def sample_positions(lengths: Sequence[int]) -> NDArray[np.int64]:
    """Return positions that restart at 0 with every sample. Shape [tokens].

    Example:
        Lengths 3 and 2: `[0 1 2 0 1]`.
    """
    counting = np.arange(max(lengths), dtype=np.int64)
    return np.concatenate([counting[:length] for length in lengths])
