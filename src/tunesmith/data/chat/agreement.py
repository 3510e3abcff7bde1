"""Whether two templates print the same, and where they first differ."""

from collections.abc import Mapping
from typing import NamedTuple

from tunesmith.data.chat.literals import MARK
from tunesmith.data.chat.render import RenderingRefusedError
from tunesmith.data.chat.template import ChatTemplate
from tunesmith.data.records import Conversation


class Difference(NamedTuple):
    """The first place at which two templates print something else."""

    sample: str
    """Name of the conversation."""

    row: int
    """Which of its rows, from 0."""

    place: int
    """Characters that are the same before it."""

    left: str
    """What the first template prints from there on; for a refusal, its words in parentheses."""

    right: str


def find_difference(left: ChatTemplate, right: ChatTemplate, samples: Mapping[str, Conversation]) -> Difference | None:
    """Return the first difference between two templates in what they print up to the last end marker, or nothing."""
    return next((found for name in samples if (found := compare(left, right, name, samples[name])) is not None), None)


def compare(left: ChatTemplate, right: ChatTemplate, name: str, conversation: Conversation) -> Difference | None:
    """Return the first difference between two templates on one conversation, or nothing.

    Where both refuse the conversation they agree. What follows the last end marker is not compared: it is not learnt,
    and nothing comes after it.
    """
    texts = [_row_texts(template, conversation) for template in (left, right)]
    if isinstance(texts[0], str) or isinstance(texts[1], str):
        refusals = [f"({text})" if isinstance(text, str) else text[-1] for text in texts]
        both_refuse = isinstance(texts[0], str) and isinstance(texts[1], str)
        return None if both_refuse else Difference(name, 0, 0, *refusals)
    for row, (one, other) in enumerate(zip(texts[0], texts[1], strict=False)):
        if one != other:
            place = _common_length(one, other)
            return Difference(name, row, place, one[place:], other[place:])
    if len(texts[0]) != len(texts[1]):
        last = min(map(len, texts)) - 1
        rows = [f"({len(text)} rows)" for text in texts]
        return Difference(name, last, len(texts[0][last]), *rows)
    return None


def _row_texts(template: ChatTemplate, conversation: Conversation) -> list[str] | str:
    """Return the text of each row up to its last end marker, or why there is none."""
    try:
        rows = template.render_segments(conversation)
    except RenderingRefusedError as refusal:
        return str(refusal)
    return ["".join(segment.text for segment in row[:-1]).replace(MARK, "") for row in rows]


def _common_length(one: str, other: str) -> int:
    return next(
        (place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right),
        min(len(one), len(other)),
    )
