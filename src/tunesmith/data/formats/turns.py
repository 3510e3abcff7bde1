"""From the turns of a row to a conversation: what order of speakers can be learnt from."""

from collections.abc import Sequence

from tunesmith.data.formats.fields import UnusableRowError
from tunesmith.data.records import Conversation, Message
from tunesmith.data.sources.dataset_spec import TurnOrderPolicy

QUESTIONS_JOINED = "questions in a row joined"
SYSTEM_TURNS_JOINED = "system turns joined"
END_LEFT_OUT = "turns after the last answer left out"

DISORDER = frozenset(
    {
        "two answers in a row",
        "two questions in a row",
        "two system turns in a row",
        "answer before a question",
        "system turn after the start",
        "tool result without a call",
        "last turn is not an answer",
    }
)
"""Reasons for which a row is left out because of the order of its turns."""


def build_conversation(
    messages: Sequence[Message], tools: str | None = None, policy: TurnOrderPolicy = "merge"
) -> Conversation:
    """Return the conversation of messages in order.

    With the policy `merge`, turns that are never learnt are repaired: two questions in a row become one, joined by a
    newline, and so do two system turns; what follows the last answer is left out. Everything else that is out of order
    makes the row unusable, because repairing it would change what is learnt: two answers in a row, an answer with
    nothing before it, a system turn in the middle. With the other policies nothing is repaired.

    Raises:
        UnusableRowError: The order of the turns cannot be learnt from.
    """
    turns: list[Message] = []
    repairs: list[str] = []
    for place, message in enumerate(messages):
        previous = turns[-1] if turns else None
        if message.role == "system" and not message.content and not turns:
            continue  # a system turn that says nothing is none
        if previous is not None and message.role == previous.role and message.role in ("user", "system"):
            repairs.append(_check_joined(message, place, policy))
            turns[-1] = Message(message.role, f"{previous.content}\n{message.content}")
            continue
        _check_follows(message, previous, place)
        turns.append(message)
    if not turns:
        raise UnusableRowError("no turns")
    if turns[-1].role != "assistant":
        turns, repairs = _without_end(turns, policy), [*repairs, END_LEFT_OUT]
    return Conversation(tuple(turns), tools, tuple(dict.fromkeys(repairs)))


def _check_joined(message: Message, place: int, policy: TurnOrderPolicy) -> str:
    """Return what joining a turn to the one before is called, or refuse it."""
    is_question = message.role == "user"
    if policy != "merge":
        reason = "two questions in a row" if is_question else "two system turns in a row"
        raise UnusableRowError(reason, f"turn {place + 1}")
    return QUESTIONS_JOINED if is_question else SYSTEM_TURNS_JOINED


def _check_follows(message: Message, previous: Message | None, place: int) -> None:
    before = previous.role if previous is not None else None
    reason = None
    if message.role == "system" and before is not None:
        reason = "system turn after the start"
    elif message.role == "assistant" and before in (None, "assistant", "system"):
        reason = "two answers in a row" if before == "assistant" else "answer before a question"
    elif message.role == "tool" and before not in ("assistant", "tool"):
        reason = "tool result without a call"
    if reason is not None:
        raise UnusableRowError(reason, f"turn {place + 1}")


def _without_end(turns: list[Message], policy: TurnOrderPolicy) -> list[Message]:
    """Return the turns up to the last answer."""
    end = max((place for place, turn in enumerate(turns, start=1) if turn.role == "assistant"), default=0)
    if policy != "merge" or not end:
        raise UnusableRowError("last turn is not an answer", f"it is of role {turns[-1].role}")
    return turns[:end]
