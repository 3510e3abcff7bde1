"""What formats share that carry completions: prompts, pairs, verdicts and margins."""

from collections.abc import Mapping, Sequence
from typing import Any

from tunesmith.data.formats.fields import UnusableRowError, describe_missing, read_flag, wrong_type
from tunesmith.data.formats.turns import build_conversation
from tunesmith.data.records import Feedback, Message, Preference
from tunesmith.data.sources.dataset_spec import TurnOrderPolicy


def build_preference(
    prompt: Sequence[Message],
    chosen: Sequence[Message],
    rejected: Sequence[Message],
    *,
    tools: str | None = None,
    margin: float = 0.0,
    policy: TurnOrderPolicy = "merge",
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
    first, answer, repairs = _ordered(prompt, chosen, tools, policy)
    second, other, more_repairs = _ordered(prompt, rejected, tools, policy)
    assert first == second, "the same messages in the same order"
    return Preference(first, answer, other, tools, margin, tuple(dict.fromkeys((*repairs, *more_repairs))))


def build_feedback(
    messages: Sequence[Message],
    *,
    is_desirable: bool,
    tools: str | None = None,
    policy: TurnOrderPolicy = "merge",
) -> Feedback:
    """Return the rated completion of a row: its last message is what the verdict is about."""
    if not messages:
        raise UnusableRowError("no turns")
    if messages[-1].role != "assistant":  # it would be left out as what follows the last answer
        raise UnusableRowError("last turn is not an answer", f"it is of role {messages[-1].role}")
    prompt, completion, repairs = _ordered(messages[:-1], messages[-1:], tools, policy)
    return Feedback(prompt, completion, is_desirable, tools, repairs)


def read_verdict(values: Mapping[str, Any], column: str | None) -> bool:
    """Return whether a completion is desirable: true or false, 1 or 0, also as text."""
    verdict = None if column is None else read_flag(values, column)
    if verdict is None:
        raise UnusableRowError("no verdict", describe_missing(values, column))
    return verdict


def read_margin(values: Mapping[str, Any], column: str | None) -> float:
    """Return by how much the chosen completion is better; 0 where the row does not say."""
    value = None if column is None else values.get(column)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MOST:
        raise wrong_type(column or "", "a number", value)
    return float(value)


_MOST = 1e30
"""Margins above are no such thing; `Infinity`, `NaN` and integers of hundreds of digits are JSON for Python."""


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
    prompt: Sequence[Message], completion: Sequence[Message], tools: str | None, policy: TurnOrderPolicy
) -> tuple[tuple[Message, ...], tuple[Message, ...], tuple[str, ...]]:
    """Check the order of all turns; return prompt and completion as conversations have them, and what was repaired."""
    conversation = build_conversation([*prompt, *completion], tools, policy)
    turns = conversation.messages
    border = next(place for place, turn in enumerate(turns) if turn is completion[0])
    return turns[:border], turns[border:], conversation.repairs
