"""From the turns of a row to a conversation: what order of speakers can be learnt from."""

from collections.abc import Sequence

from tunesmith.data.formats.fields import UnusableRowError
from tunesmith.data.records import Conversation, Message


def build_conversation(messages: Sequence[Message], tools: str | None = None) -> Conversation:
    """Return the conversation of messages in order.

    Two questions in a row become one, joined by a newline: nothing of them is learnt, and templates print one user
    turn at a time. Everything else that is out of order drops the row, because repairing it would change what is
    learnt: two answers in a row, an answer with nothing before it, a last turn that is not an answer.

    Raises:
        UnusableRowError: The order of the turns cannot be learnt from.
    """
    turns: list[Message] = []
    for place, message in enumerate(messages):
        previous = turns[-1] if turns else None
        if message.role == "system":
            if place > 0:
                raise UnusableRowError("system turn after the start", f"turn {place + 1}")
            if not message.content:
                continue
        elif message.role == "user" and previous is not None and previous.role == "user":
            turns[-1] = Message("user", f"{previous.content}\n{message.content}")
            continue
        elif message.role == "assistant" and (previous is None or previous.role in ("assistant", "system")):
            reason = "two answers in a row" if previous and previous.role == "assistant" else "answer before a question"
            raise UnusableRowError(reason, f"turn {place + 1}")
        elif message.role == "tool" and (previous is None or previous.role not in ("assistant", "tool")):
            raise UnusableRowError("tool result without a call", f"turn {place + 1}")
        turns.append(message)
    if not turns:
        raise UnusableRowError("no turns")
    if turns[-1].role != "assistant":
        raise UnusableRowError("last turn is not an answer", f"it is of role {turns[-1].role}")
    return Conversation(tuple(turns), tools)
