"""What formats share that carry completions: prompts, pairs, verdicts and margins."""

from collections.abc import Mapping, Sequence
from typing import Any

from tunesmith.data.formats.fields import UnusableRowError, describe_missing, wrong_type
from tunesmith.data.formats.turns import build_conversation
from tunesmith.data.records import Feedback, Message, Preference


def build_preference(
    prompt: Sequence[Message],
    chosen: Sequence[Message],
    rejected: Sequence[Message],
    *,
    tools: str | None = None,
    margin: float = 0.0,
) -> Preference:
    """Return the pair of a row.

    Completions that begin with something else than an answer bring their prompt along: it is what both begin with.

    Raises:
        UnusableRowError: The turns are in an order that cannot be learnt from, or there is no common prompt.
    """
    if not chosen or not rejected:
        raise UnusableRowError("no completion", f"the {'rejected' if chosen else 'chosen'} one is missing")
    if chosen[0].role != "assistant" or rejected[0].role != "assistant":
        prompt, chosen, rejected = _split_shared(prompt, chosen, rejected)
    first, answer = _ordered(prompt, chosen, tools)
    second, other = _ordered(prompt, rejected, tools)
    assert first == second, "the same messages in the same order"
    return Preference(first, answer, other, tools, margin)


def build_feedback(messages: Sequence[Message], *, is_desirable: bool, tools: str | None = None) -> Feedback:
    """Return the rated completion of a row: its last message is what the verdict is about."""
    if not messages:
        raise UnusableRowError("no turns")
    prompt, completion = _ordered(messages[:-1], messages[-1:], tools)
    return Feedback(prompt, completion, is_desirable, tools)


def read_verdict(values: Mapping[str, Any], column: str | None) -> bool:
    """Return whether a completion is desirable: true or false, also written as 1 or 0."""
    value = None if column is None else values.get(column)
    if value is None:
        raise UnusableRowError("no verdict", describe_missing(values, column))
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    raise wrong_type(column or "", "true or false", value)


def read_margin(values: Mapping[str, Any], column: str | None) -> float:
    """Return by how much the chosen completion is better; 0 where the row does not say."""
    value = None if column is None else values.get(column)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(column or "", "a number", value)
    return float(value)


def _split_shared(
    prompt: Sequence[Message], chosen: Sequence[Message], rejected: Sequence[Message]
) -> tuple[Sequence[Message], Sequence[Message], Sequence[Message]]:
    """Take what two conversations begin with as their prompt; what it said before, if anything, stands first."""
    shared = 0
    for first, second in zip(chosen, rejected, strict=False):
        if first != second:
            break
        shared += 1
    # A completion begins with an answer, and there is one on either side, even where the two are the same.
    shared = min(shared, len(chosen) - 1, len(rejected) - 1)
    while shared and not (chosen[shared].role == rejected[shared].role == "assistant"):
        shared -= 1
    if not shared:
        raise UnusableRowError("chosen and rejected have no prompt in common", f"they begin with {chosen[0].role}")
    brings_all = list(prompt) == list(chosen[: len(prompt)])
    return (chosen[:shared] if brings_all else [*prompt, *chosen[:shared]]), chosen[shared:], rejected[shared:]


def _ordered(
    prompt: Sequence[Message], completion: Sequence[Message], tools: str | None
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Check the order of all turns and return prompt and completion as conversations have them."""
    turns = build_conversation([*prompt, *completion], tools).messages
    border = next(place for place, turn in enumerate(turns) if turn is completion[0])
    return turns[:border], turns[border:]
