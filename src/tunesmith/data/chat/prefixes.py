"""Answers in text of a template without marks: what rendering one turn more adds to the prompt that serving sends."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tunesmith.data.chat.render import RenderingRefusedError
from tunesmith.data.chat.segment import Segment
from tunesmith.data.chat.thinking import USUAL_TAGS, Tags, complete_text

RenderTurns = Callable[[Sequence[Mapping[str, Any]], bool, int], str]
"""Renders messages, with or without the prompt for the next answer; the number is the place of the answer."""


class Ending(NamedTuple):
    """What follows the words of an answer."""

    marker: str
    """The end marker, which is learnt."""

    tail: str = ""
    """What the template still prints when the answer is the last message, such as a newline; not learnt."""

    is_printed: bool = True
    """Whether the template prints the marker; otherwise it is put behind each answer that is learnt."""


class _Answer(NamedTuple):
    """One answer in the text that ends with it."""

    message_index: int
    start: int
    end: int
    text: str
    """All text up to and including the tail of this answer."""


def segments_by_prefix(
    render: RenderTurns,
    messages: Sequence[Mapping[str, Any]],
    answers: Sequence[int],
    ending: Ending,
    tags: Tags = USUAL_TAGS,
) -> list[list[Segment]]:
    """Return the rows of a conversation, see `ChatTemplate.render_segments`.

    For every answer the prompt that serving would send has to be the beginning of the text with the answer, and the
    difference is what is learnt. Where also the text with each answer is the beginning of the whole conversation, one
    row holds them all.

    Args:
        render: The template.
        messages: Messages as dicts; the last one is an answer.
        answers: Places of the answers to be learnt, ascending.
        ending: What follows the words of an answer.
        tags: Texts around reasoning, for prompts that open it.

    Raises:
        RenderingRefusedError: A prompt is not the beginning of the text with its answer.
    """
    found = [_find_answer(render, messages, answer, ending, tags) for answer in answers]
    whole = found[-1].text
    if all(whole.startswith(answer.text[: answer.end]) for answer in found[:-1]):
        return [_row(whole, found)]
    return [_row(answer.text, [answer]) for answer in found]


def _find_answer(
    render: RenderTurns, messages: Sequence[Mapping[str, Any]], answer: int, ending: Ending, tags: Tags
) -> _Answer:
    prompt = render(messages[:answer], True, answer)
    text = render(messages[: answer + 1], False, answer)
    if not text.startswith(prompt):
        completed = complete_text(prompt, text, messages[answer], tags)
        if completed is None:
            raise RenderingRefusedError(
                "the prompt for an answer is not how the conversation begins", f"message {answer + 1}: {prompt[-40:]!r}"
            )
        text = completed
    if not ending.is_printed:
        text = text.removesuffix(ending.tail)
        if len(text) <= len(prompt) and (messages[answer].get("content") or messages[answer].get("tool_calls")):
            raise RenderingRefusedError("the chat template does not print every answer", f"message {answer + 1}")
        text = text + ending.marker + ending.tail
    if not text.endswith(ending.marker + ending.tail):
        raise RenderingRefusedError(
            "the chat template does not close the answer", f"message {answer + 1}: {text[-40:]!r}"
        )
    end = len(text) - len(ending.tail)
    if end <= len(prompt):
        raise RenderingRefusedError("the chat template does not print every answer", f"message {answer + 1}")
    return _Answer(answer, len(prompt), end, text)


def _row(text: str, answers: Sequence[_Answer]) -> list[Segment]:
    row = []
    position = 0
    for answer in answers:
        row.append(Segment(text[position : answer.start], False, answer.message_index))
        row.append(Segment(text[answer.start : answer.end], True, answer.message_index))
        position = answer.end
    row.append(Segment(text[position:], False, answers[-1].message_index))
    return row
