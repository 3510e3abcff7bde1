"""The wire text of a model family: what stands around system messages, questions, answers and tool results.

Patterns hold `{}` where the content goes, `{bos}` and `{eos}` where the tokenizer's start and end token go; all other
text, braces included, is printed as it is. `compose.py` makes the Jinja template of a wire.
"""

from dataclasses import dataclass, replace
from typing import Any

from tunesmith.data.chat.thinking import Tags


@dataclass(frozen=True, slots=True)
class Thought:
    """How a family writes reasoning before the words of an answer, and what becomes of it later.

    The rule is that of the published templates: reasoning is printed in answers after the last question (so also in a
    chain of tool calls that is still going on) and left out of earlier ones.
    """

    opening: str = "<think>\n"
    closing: str = "\n</think>\n\n"
    empty: str | None = None
    """What stands there when nothing was thought; opening and closing when not said otherwise."""

    in_history: bool = False
    """Whether earlier answers carry the empty form instead of nothing."""

    inner: bool = False
    """Whether answers inside a chain of tool calls carry the empty form when nothing was thought; the last one does."""

    @property
    def tags(self) -> Tags:
        """The texts around reasoning."""
        return Tags(self.opening.strip("\n"), self.closing.strip("\n"))

    @property
    def nothing(self) -> str:
        """The empty form."""
        return self.opening + self.closing if self.empty is None else self.empty


@dataclass(frozen=True, slots=True)
class Wire:
    """One family's format of conversations."""

    user: str
    header: str
    """What asks for an answer; part of the prompt."""

    lead: str = ""
    """Text of the template between header and words that is learnt as the beginning of the answer."""

    marker: str | None = None
    """What closes an answer and is learnt; the tokenizer's end token when not given."""

    separator: str = ""
    """What always follows the marker; not learnt, since generation has stopped before it."""

    closed_history: str | None = None
    """What closes earlier answers where it is not the marker: families that print the end token once, at the end."""

    prefix: str = ""
    system: str = "{}"
    default_system: str = ""
    system_in_question: bool = False
    """Whether the system message is printed inside the first question."""

    result: str | None = None
    """A tool result; like a question when not given."""

    results_opening: str = ""
    """What stands before the first of several results in a row."""

    results_closing: str = ""
    tools: str = "default"
    """Name of the tool format."""

    call_opening: str = ""
    """What stands before the calls of an answer, outside of the tool format's own text."""

    thought: Thought | None = None
    stops: tuple[str, ...] = ()
    """Further texts at which generation stops."""

    becomes_eos: bool = False
    """Whether the marker becomes the tokenizer's end token, because the family is served that way."""

    def but(self, **changes: Any) -> "Wire":
        """Return a wire that differs in a few fields."""
        return replace(self, **changes)
