"""Reasoning in answers: where it begins and ends, when it is printed, and taking it out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Tags(NamedTuple):
    """The texts around reasoning, without the line breaks beside them."""

    opening: str = "<think>"
    closing: str = "</think>"


USUAL_TAGS = Tags()

KNOWN_TAGS = (
    USUAL_TAGS,
    Tags("<seed:think>", "</seed:think>"),
    Tags("◁think▷", "◁/think▷"),
    Tags("[THINK]", "[/THINK]"),
    Tags("<|channel>thought", "<channel|>"),
)
"""Tags of published templates."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a run treats reasoning."""

    enabled: bool | None = True
    """Yes: as the template does by itself. No: taken out of answers, and the empty form is part of the prompt.
    Nothing: each answer as it is; the empty form is part of the prompt of those without reasoning."""

    preserved: bool = False
    """Whether the reasoning of earlier answers stays."""

    tags: Tags = USUAL_TAGS
    is_switchable: bool = False
    """Whether the template knows `enable_thinking`."""

    nothing: str = ""
    """What stands before the words when nothing was thought, where it is not the two tags."""

    def variables(self, answers: Sequence[Mapping[str, Any]]) -> dict[str, bool]:
        """Return what the template has to be told for a row; what holds for all rows is part of its text.

        Args:
            answers: The messages that are learnt in the row.
        """
        if self.enabled is None and self.is_switchable:
            silent = not all(has_reasoning(message, self.tags) for message in answers)
            return {"enable_thinking": False} if silent else {}
        return {}

    def prepare(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages, without their reasoning where it is switched off."""
        if self.enabled is not False or not self.is_switchable:
            return messages
        return [without_reasoning(message, self.tags) for message in messages]


PLAIN_THINKING = Thinking()
"""Reasoning as the template treats it."""


def find_tags(source: str) -> Tags:
    """Return the tags that a template speaks of, or the most usual ones."""
    return next((tags for tags in KNOWN_TAGS if tags.closing in source), USUAL_TAGS)


def has_reasoning(message: Mapping[str, Any], tags: Tags) -> bool:
    """Return whether an answer holds reasoning."""
    return bool(message.get("reasoning_content")) or tags.closing in (message.get("content") or "")


def split_reasoning(message: Mapping[str, Any], tags: Tags) -> tuple[str, str]:
    """Return the reasoning of an answer and its words."""
    content = message.get("content") or ""
    reasoning = message.get("reasoning_content") or ""
    if reasoning or tags.closing not in content:
        return reasoning, content
    before, _, after = content.rpartition(tags.closing)
    return before.rpartition(tags.opening)[2].strip("\n"), after.lstrip("\n")


def without_reasoning(message: dict[str, Any], tags: Tags) -> dict[str, Any]:
    """Return a message without reasoning; messages that are no answers, or have none, are returned as they are."""
    if message["role"] != "assistant" or not has_reasoning(message, tags):
        return message
    kept = {key: value for key, value in message.items() if key != "reasoning_content"}
    return {**kept, "content": split_reasoning({"content": message.get("content")}, tags)[1]}


def complete_text(prompt: str, text: str, message: Mapping[str, Any], tags: Tags) -> str | None:
    """Return the text with an answer as a model writes it behind a prompt that ends with reasoning, open or empty.

    Templates with such prompts mostly print answers without reasoning, or only sometimes with it.

    Args:
        prompt: Asks for the answer. It ends with the opening tag, or with the empty form.
        text: What the template prints with the answer.
        message: The answer.
        tags: The tags around reasoning.

    Returns:
        The prompt and the rest of the answer; nothing where the two do not begin alike.
    """
    before, opening, after = prompt.rpartition(tags.opening)
    if not opening or not text.startswith(before):
        return None
    rest = text[len(before) :]
    if after.strip() == tags.closing:
        return None if rest.startswith(tags.opening) else prompt + rest
    if after.strip():
        return None
    if rest.startswith(tags.opening):
        return prompt + rest[len(tags.opening) :].lstrip("\n")
    reasoning, _ = split_reasoning(message, tags)
    return f"{prompt}{reasoning}\n{tags.closing}\n\n{rest}"
