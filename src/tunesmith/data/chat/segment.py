"""One stretch of rendered text, learnt or not."""

from typing import NamedTuple


class Segment(NamedTuple):
    """A stretch of a rendered conversation; the segments of a row joined are exactly what the template prints."""

    text: str
    trained: bool
    """Whether this is an answer with its end marker."""

    message_index: int
    """The answer's place among the messages; for other text, the answer that it leads to (or follows, at the end)."""
