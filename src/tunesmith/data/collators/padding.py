"""The only place that pads, and the arrays that both layouts fill from rows."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tunesmith.data.batches import IGNORE_INDEX, Example


def padded_length(lengths: Sequence[int], multiple: int | None = None) -> int:
    """Return the length of the longest row, rounded up to a multiple."""
    longest = max(lengths)
    return longest if multiple is None else -(-longest // multiple) * multiple


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


def mark_real(lengths: Sequence[int], length: int) -> NDArray[np.int64]:
    """Return 1 where rows have a token and 0 where they are filled up.

    Args:
        lengths: Tokens of each row.
        length: Tokens that each is filled up to.

    Returns:
        New array. Shape [rows, length].
    """
    mask = np.zeros((len(lengths), length), dtype=np.int64)
    end_to_end, ones = mask.reshape(-1).data, np.ones(length, dtype=np.int64).data
    for number, size in enumerate(lengths):
        end_to_end[number * length : number * length + size] = ones[:size]
    return mask


def lay_end_to_end(samples: Sequence[Example], num_tokens: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return token ids and labels of samples that stand end to end.

    Args:
        samples: Rows in order.
        num_tokens: Tokens of all samples together.

    Returns:
        New arrays. Shape [tokens] each.
    """
    ids, labels = np.empty(num_tokens, dtype=np.int32), np.full(num_tokens, IGNORE_INDEX, dtype=np.int32)
    write_samples(samples, ids.data, labels.data)
    return ids.astype(np.int64), labels.astype(np.int64)


def write_samples(samples: Sequence[Example], ids: memoryview, labels: memoryview, begin: int = 0) -> None:
    """Write token ids and labels of samples that stand end to end: their trained ids, `IGNORE_INDEX` elsewhere.

    The first token of a sample gets no label in any case: in a row of several samples, the shift in the loss
    would make it the target of the last token of another sample; alone it is never a target.

    Views of 32-bit numbers are written to, since numpy takes several times as long for a short slice, and twice as long
    again where it has to widen numbers on the way. One pass over the whole batch does that best.

    Args:
        samples: Rows in order.
        ids: Written to in place; may go on after the last sample. Shape [tokens], int32.
        labels: As `ids`, and all `IGNORE_INDEX` before.
        begin: Place of the first token.
    """
    for sample in samples:
        row = sample["input_ids"].data
        end = begin + len(row)
        ids[begin:end] = row
        spans = sample["trained_spans"].tolist()
        for at in range(0, len(spans), 2):
            first, last = spans[at] or 1, spans[at + 1]
            if first < last:
                labels[begin + first : begin + last] = row[first:last]
        begin = end


def sample_positions(lengths: Sequence[int]) -> NDArray[np.int64]:
    """Return positions that restart at 0 with every sample. Shape [tokens].

    Example:
        Lengths 3 and 2: `[0 1 2 0 1]`.
    """
    counting = np.arange(max(lengths), dtype=np.int64)
    return np.concatenate([counting[:length] for length in lengths])
