"""Which text of a row is learnt: by place, never by what a token is equal to.

A row is held as pieces of text that alternate, `[prompt, answer, prompt, answer, ..., rest]`: what stands at an odd
place is learnt. The number of pieces is odd, and pieces may be empty.
"""

from collections.abc import Sequence, Sized

import numpy as np
from numpy.typing import NDArray

from tunesmith.data.chat.segment import Segment
from tunesmith.data.records import Message
from tunesmith.data.tokenization.encoded import NOTHING_LOST, EncodedRow, Truncation


def learnt_pieces(row: Sequence[Segment], messages: Sequence[Message], *, only_last: bool) -> list[str]:
    """Return the pieces of a rendered row; neighbours that are not learnt are joined.

    Joining matters: what is not learnt is tokenised in one go, exactly as serving does with a prompt.

    Args:
        row: Segments of the row.
        messages: The conversation they come from; an answer with `trained=False` is treated like a prompt.
        only_last: Learn the last answer of the row only.

    Returns:
        Pieces; a single one when nothing is learnt.
    """
    if only_last:
        last = max((place for place, segment in enumerate(row) if segment.trained), default=-1)
        row = [segment._replace(trained=place == last) for place, segment in enumerate(row)]
    pieces: list[str] = [""]
    for text, is_answer, message_index in row:
        if is_answer and messages[message_index].trained is not False:
            pieces += (text, "")
        else:
            pieces[-1] += text
    return pieces


def trained_spans(pieces: Sequence[Sized]) -> list[int]:
    """Return the flattened half-open ranges that the learnt pieces take.

    Args:
        pieces: Ids of each piece, beginning with a prompt: pieces at odd places are learnt.
    """
    spans: list[int] = []
    position = 0
    for place, ids in enumerate(pieces):
        start = position
        position += len(ids)
        if place % 2 and position > start:
            spans += (start, position)
    return spans


def build_row(
    ids: Sequence[NDArray[np.int32]], *, train_on_prompt: bool, truncation: frozenset[Truncation] = NOTHING_LOST
) -> EncodedRow:
    """Return the row of pieces; those at odd places are learnt, or all where prompts are, too."""
    flat = np.concatenate(ids)
    spans = [0, len(flat)] if train_on_prompt else trained_spans(ids)
    return EncodedRow(flat, np.array(spans, dtype=np.int32), truncation)
