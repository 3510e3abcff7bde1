"""The canonical rows: what every format is converted to and every template renders.

A raw row of any shape becomes one of these records or is dropped with a reason; nothing downstream ever looks at raw
rows again. Records are plain and frozen, so that they can cross processes and be compared in tests.
"""

from dataclasses import dataclass, field
from typing import Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that an assistant message makes."""

    name: str
    arguments: str
    """JSON text of the arguments object, kept opaque."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    trained: bool | None = None
    """Whether an assistant turn is learnt; `None` leaves it to the run's settings."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages in order, with at least one assistant message to learn from."""

    messages: tuple[Message, ...]
    tools: str | None = None
    """JSON text of the list of tool schemas, kept opaque."""

    repairs: tuple[str, ...] = field(default=(), compare=False)
    """What was done to the order of the turns, for the account."""


@dataclass(frozen=True, slots=True)
class Document:
    """Plain text for continued pre-training."""

    text: str


@dataclass(frozen=True, slots=True)
class Preference:
    """One prompt and two completions of it, of which one was preferred."""

    prompt: tuple[Message, ...]
    """What both completions follow; never empty."""

    chosen: tuple[Message, ...]
    """The preferred completion: messages that begin with one of the assistant."""

    rejected: tuple[Message, ...]
    tools: str | None = None
    margin: float = 0.0
    """By how much the chosen one is better, for rewards that should say so; 0 where nobody measured it."""

    repairs: tuple[str, ...] = field(default=(), compare=False)
    """What was done to the order of the turns, for the account."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """One prompt and one completion of it, with a verdict."""

    prompt: tuple[Message, ...]
    completion: tuple[Message, ...]
    is_desirable: bool
    tools: str | None = None

    repairs: tuple[str, ...] = field(default=(), compare=False)
    """What was done to the order of the turns, for the account."""


Record = Conversation | Document | Preference | Feedback


@dataclass(frozen=True, slots=True)
class Dropped:
    """A row that cannot be used, and why. Reasons are short and fixed, so that they can be counted."""

    reason: str
    detail: str = field(default="", compare=False)
    """What exactly was found, for the first few rows shown to the user."""
