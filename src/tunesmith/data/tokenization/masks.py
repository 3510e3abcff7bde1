"""Which text of a row is learnt: by place, never by what a token is equal to."""

from collections.abc import Sequence
from typing import NamedTuple

from tunesmith.data.chat.segment import Segment
from tunesmith.data.records import Message


class Piece(NamedTuple):
    """Text between two borders of what is learnt. Pieces of a row alternate, beginning and ending with prompt text."""

    text: str
    trained: bool


def learnt_pieces(row: Sequence[Segment], messages: Sequence[Message], *, only_last: bool) -> list[Piece]:
    """Return the pieces of a rendered row; neighbours that are not learnt are joined.

    Joining matters: what is not learnt is tokenised in one go, exactly as serving does with a prompt.

    Args:
        row: Segments of the row.
        messages: The conversation they come from; an answer with `trained=False` is treated like a prompt.
        only_last: Learn the last answer of the row only.

    Returns:
        Pieces `[prompt, answer, prompt, answer, ..., rest]`; an odd number. One piece when nothing is learnt.
    """
    last = max((place for place, segment in enumerate(row) if segment.trained), default=-1)
    pieces: list[Piece] = []
    waiting: list[str] = []
    for place, (text, is_answer, message_index) in enumerate(row):
        if is_answer and (place == last or not only_last) and messages[message_index].trained is not False:
            pieces.append(Piece("".join(waiting), False))
            pieces.append(Piece(text, True))
            waiting = []
        else:
            waiting.append(text)
    pieces.append(Piece("".join(waiting), False))
    return pieces


def trained_spans(pieces: Sequence[Sequence[int]]) -> list[int]:
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
