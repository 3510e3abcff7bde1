"""A chat template that is ready to render: prompts for serving, and rows that know which text is an answer."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from tunesmith.data.chat.messages import template_messages, template_tools
from tunesmith.data.chat.prefixes import Ending, segments_by_prefix
from tunesmith.data.chat.render import RenderingRefusedError, render_marked, render_text
from tunesmith.data.chat.segment import Segment
from tunesmith.data.records import Conversation, Message

logger = logging.getLogger(__name__)

_ADD_PROMPT = {"add_generation_prompt": True}
_NO_PROMPT = {"add_generation_prompt": False}


@dataclass(frozen=True)
class ToolSupport:
    """Which parts of tool use a template prints. What it does not print would be lost without a word."""

    schemas: bool = False
    calls: bool = False
    results: bool = False


@dataclass(frozen=True)
class ChatTemplate:
    """Renders conversations to text with the template that is saved beside the model.

    Instances are plain values: they can be pickled, compared and used as part of a cache key.
    """

    name: str
    source: str
    """Jinja text that goes to the tokenizer."""

    marked_source: str
    """The same with `{% generation %}` marks; equal to `source` where the template is rendered prefix by prefix."""

    method: Literal["marks", "prefixes"]
    """How answers are found in the rendered text."""

    rewrites_history: bool
    """Whether earlier answers look different once another turn follows. Each answer then gets a row of its own."""

    ending: Ending
    """What follows the words of an answer."""

    special_tokens: tuple[tuple[str, str], ...]
    """Names such as `bos_token` that the template may print, and their text in this tokenizer."""

    replaces_eos: bool = False
    """Whether the end marker becomes the tokenizer's end token, because the family is served that way."""

    tools: ToolSupport = ToolSupport()

    @property
    def end_markers(self) -> tuple[str, ...]:
        """Texts that close an answer, the template's own first; generation stops at any of them."""
        eos_token = dict(self.special_tokens).get("eos_token")
        own = self.ending.marker.strip()
        return (own,) if eos_token in (None, own) else (own, eos_token)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of everything that decides what is printed and what is learnt; part of the cache key."""
        content = (
            self.source,
            self.marked_source,
            self.method,
            self.rewrites_history,
            self.ending.marker,
            self.ending.tail,
            self.special_tokens,
        )
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def render_prompt(
        self,
        messages: Sequence[Message | Mapping[str, Any]],
        tools: str | Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """Return the text that serving sends for these messages.

        Raises:
            RenderingRefusedError: The template does not take these messages.
        """
        flags = _ADD_PROMPT if add_generation_prompt else _NO_PROMPT
        return self._text(template_messages(messages), template_tools(tools), flags)

    def render_segments(self, conversation: Conversation, *, only_last: bool = False) -> list[list[Segment]]:
        """Return the rows of a conversation, each as segments that joined are the rendered text.

        Args:
            conversation: Messages whose last one is an answer.
            only_last: Only the last answer will be learnt, so that rows for earlier ones are not needed. The earlier
                answers may still be marked in the row of the last.

        Returns:
            One row, with every answer marked, where the template prints an earlier answer the same when more turns
            follow. Otherwise one row per answer, with that answer marked: the turns before it look as they do when
            the model is served at that point.

        Raises:
            RenderingRefusedError: The template does not take this conversation.
        """
        self._check_tools(conversation)
        messages = template_messages(conversation.messages)
        tools = template_tools(conversation.tools)
        answers = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
        if not answers:
            raise RenderingRefusedError("no answer")
        if self.method == "prefixes":
            wanted = answers[-1:] if only_last else answers
            return segments_by_prefix(
                lambda turns, add: self._text(turns, tools, _ADD_PROMPT if add else _NO_PROMPT),
                messages,
                wanted,
                self.ending,
            )
        if not self.rewrites_history or len(answers) == 1:
            return [self._marked_row(messages, tools, answers)]
        if only_last:
            return [self._last_marked(self._marked_row(messages, tools, answers))]
        return [
            self._last_marked(self._marked_row(messages[: answer + 1], tools, answers[: number + 1]))
            for number, answer in enumerate(answers)
        ]

    def apply_to_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Make the tokenizer carry this template, so that what is saved serves what was trained.

        The end token becomes the end marker where the family is served that way and the marker is one token here.
        """
        tokenizer.chat_template = self.source
        marker = self.ending.marker
        if not self.replaces_eos or tokenizer.eos_token == marker:
            return
        if marker in tokenizer.get_vocab():
            tokenizer.eos_token = marker
        else:
            logger.warning(
                "template %s ends answers with %r, which is not one token of this tokenizer: the end token stays %r, "
                "and generation has to stop at the text of the marker",
                self.name,
                marker,
                tokenizer.eos_token,
            )

    def _text(self, messages: Sequence[Mapping[str, Any]], tools: list[Any] | None, flags: Mapping[str, bool]) -> str:
        return render_text(self.source, messages, tools, {**self._variables, **flags})

    @cached_property
    def _variables(self) -> dict[str, str]:
        return dict(self.special_tokens)

    @cached_property
    def _prints_all_tools(self) -> bool:
        return self.tools == ToolSupport(schemas=True, calls=True, results=True)

    @cached_property
    def _row_variables(self) -> dict[str, Any]:
        return {**self._variables, **_NO_PROMPT}

    def _marked_row(
        self, messages: Sequence[Mapping[str, Any]], tools: list[Any] | None, answers: Sequence[int]
    ) -> list[Segment]:
        parts = render_marked(self.marked_source, messages, tools, self._row_variables)
        if len(parts) != 2 * len(answers) + 1:
            raise RenderingRefusedError("the chat template does not print every answer")
        row = []
        for number, answer in enumerate(answers):
            row.append(Segment(parts[2 * number], False, answer))
            row.append(Segment(parts[2 * number + 1], True, answer))
        row.append(Segment(parts[-1], False, answers[-1]))
        return row

    @staticmethod
    def _last_marked(row: list[Segment]) -> list[Segment]:
        return [
            segment._replace(trained=segment.trained and place == len(row) - 2) for place, segment in enumerate(row)
        ]

    def _check_tools(self, conversation: Conversation) -> None:
        if self._prints_all_tools:
            return
        if conversation.tools and not self.tools.schemas:
            raise RenderingRefusedError("the chat template cannot print tools", f"template {self.name}")
        for message in conversation.messages:
            if message.role == "tool" and not self.tools.results:
                raise RenderingRefusedError("the chat template cannot print tool results", f"template {self.name}")
            if message.tool_calls and not self.tools.calls:
                raise RenderingRefusedError("the chat template cannot print tool calls", f"template {self.name}")
