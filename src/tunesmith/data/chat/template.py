"""A chat template that is ready to render: prompts for serving, and rows that know which text is an answer."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from tunesmith.data.chat.literals import LiteralTexts, has_token
from tunesmith.data.chat.messages import template_messages, template_tools
from tunesmith.data.chat.prefixes import Ending, segments_by_prefix
from tunesmith.data.chat.render import RenderingRefusedError, render_marked, render_text
from tunesmith.data.chat.segment import Segment
from tunesmith.data.chat.thinking import PLAIN_THINKING, Thinking, split_reasoning
from tunesmith.data.chat.tools import ParsedAnswer, parse_tool_calls
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
    tool_format: str | None = None
    """Name of the format that calls are printed in, where it is one of ours; see `parse_answer`."""

    thinking: Thinking = PLAIN_THINKING
    """How the run treats reasoning."""

    literal_tokens: tuple[str, ...] = ()
    """Texts of special tokens that stay text inside questions and tool results."""

    stops: tuple[str, ...] = ()
    """Further texts at which generation stops."""

    @property
    def end_markers(self) -> tuple[str, ...]:
        """Texts that close an answer, the template's own first; generation stops at any of them."""
        eos_token = dict(self.special_tokens).get("eos_token")
        markers = (self.ending.marker.strip(), *([eos_token] if eos_token else []), *self.stops)
        return tuple(dict.fromkeys(markers))

    @cached_property
    def fingerprint(self) -> str:
        """Digest of everything that decides what is printed and what is learnt; part of the cache key."""
        content = (
            self.source,
            self.marked_source,
            self.method,
            self.rewrites_history,
            self.ending,
            self.special_tokens,
            self.thinking.enabled,
            self.thinking.tags,
            self.literal_tokens,
        )
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def render_prompt(
        self,
        messages: Sequence[Message | Mapping[str, Any]],
        tools: str | Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """Return the text that serving sends for these messages.

        Raises:
            RenderingRefusedError: The template does not take these messages.
        """
        flags = _ADD_PROMPT if add_generation_prompt else _NO_PROMPT
        return self._text(template_messages(messages), template_tools(tools), flags)

    def render_protected_prompt(
        self,
        messages: Sequence[Message | Mapping[str, Any]],
        tools: str | Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Return the prompt for the next answer, with `literals.MARK` where a special-token text has to stay text.

        Raises:
            RenderingRefusedError: The template does not take these messages.
        """
        return self._text(self._prepared(messages), template_tools(tools), _ADD_PROMPT)

    def render_segments(self, conversation: Conversation, *, only_last: bool = False) -> list[list[Segment]]:
        """Return the rows of a conversation, each as segments that joined are the rendered text.

        Inside a special-token text of a question or tool result that has to stay text stands `literals.MARK`; where
        pieces of text become ids it cuts the text and is gone.

        Args:
            conversation: Messages whose last one is an answer.
            only_last: Only the last answer will be learnt, so that rows for earlier ones are not needed. The earlier
                answers may still be marked in the row of the last.

        Returns:
            One row, with every answer marked, where the template prints an earlier answer the same when more turns
            follow. Otherwise one row per answer, with that answer marked: the turns before it look as they do when
            the model is served at that point. Answers that stay the same up to a later one, as in a chain of tool
            calls, are marked in its row.

        Raises:
            RenderingRefusedError: The template does not take this conversation.
        """
        self._check_tools(conversation)
        messages = self._prepared(conversation.messages)
        tools = template_tools(conversation.tools)
        answers = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
        if not answers:
            raise RenderingRefusedError("no answer")
        if self.method == "prefixes":
            wanted = answers[-1:] if only_last else answers
            return self._prefix_rows(messages, tools, wanted)
        if not self.rewrites_history or len(answers) == 1:
            return [self._marked_row(messages, tools, answers, answers)]
        if only_last:
            return [self._last_marked(self._marked_row(messages, tools, answers, answers[-1:]))]
        return _merged(
            [
                self._last_marked(self._marked_row(messages[: answer + 1], tools, answers[: number + 1], [answer]))
                for number, answer in enumerate(answers)
            ]
        )

    def parse_answer(self, text: str, tools: str | Sequence[Mapping[str, Any]] | None = None) -> ParsedAnswer:
        """Return the words, tool calls and reasoning of what a model wrote.

        Args:
            text: The answer without its end marker; special tokens have to be in it.
            tools: Schemas of the tools that the model was given.
        """
        reasoning, words = split_reasoning({"content": text.removeprefix(self.thinking.nothing)}, self.thinking.tags)
        answer = ParsedAnswer(words)
        if self.tool_format is not None:
            answer = parse_tool_calls(words, self.tool_format, tools)
        return replace(answer, reasoning=reasoning)

    def apply_to_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Make the tokenizer carry this template, so that what is saved serves what was trained.

        The end token becomes the end marker where the family is served that way and the marker is one token here.
        """
        tokenizer.chat_template = self.source
        marker = self.ending.marker.strip()
        if not self.replaces_eos or tokenizer.eos_token == marker:
            return
        if has_token(tokenizer, marker):
            tokenizer.eos_token = marker
        else:
            logger.warning(
                "template %s ends answers with %r, which is not one token of this tokenizer: the end token stays %r, "
                "and generation has to stop at the text of the marker",
                self.name,
                marker,
                tokenizer.eos_token,
            )

    def _prepared(self, messages: Sequence[Message | Mapping[str, Any]]) -> list[Any]:
        prepared = self.thinking.prepare(template_messages(messages))
        return prepared if self._literals is None else self._literals.protect(prepared)

    def _text(self, messages: Sequence[Mapping[str, Any]], tools: list[Any] | None, flags: Mapping[str, bool]) -> str:
        return render_text(self.source, messages, tools, {**self._variables, **flags})

    @cached_property
    def _literals(self) -> LiteralTexts | None:
        return LiteralTexts(self.literal_tokens) if self.literal_tokens else None

    @cached_property
    def _variables(self) -> dict[str, str]:
        return dict(self.special_tokens)

    @cached_property
    def _prints_all_tools(self) -> bool:
        return self.tools == ToolSupport(schemas=True, calls=True, results=True)

    @cached_property
    def _row_variables(self) -> dict[str, Any]:
        return {**self._variables, **_NO_PROMPT}

    def _prefix_rows(
        self, messages: Sequence[Mapping[str, Any]], tools: list[Any] | None, answers: Sequence[int]
    ) -> list[list[Segment]]:
        def render(turns: Sequence[Mapping[str, Any]], add: bool, answer: int) -> str:
            flags = {**(_ADD_PROMPT if add else _NO_PROMPT), **self.thinking.variables([messages[answer]])}
            return self._text(turns, tools, flags)

        return segments_by_prefix(render, messages, answers, self.ending, self.thinking.tags)

    def _marked_row(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: list[Any] | None,
        answers: Sequence[int],
        learnt: Sequence[int],
    ) -> list[Segment]:
        variables = self._row_variables
        if self.thinking.enabled is None:
            variables = {**variables, **self.thinking.variables([messages[place] for place in learnt])}
        parts = render_marked(self.marked_source, messages, tools, variables)
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


def _merged(rows: list[list[Segment]]) -> list[list[Segment]]:
    """Return the rows without those that are, up to their last answer, how the next row begins."""
    merged = [rows[-1]]
    for row in reversed(rows[:-1]):
        later = merged[0]
        size = len(row) - 1
        if all(one.text == other.text for one, other in zip(row[:size], later, strict=False)):
            both = [
                one._replace(trained=one.trained or other.trained)
                for one, other in zip(row[:size], later, strict=False)
            ]
            merged[0] = both + later[size:]
        else:
            merged.insert(0, row)
    return merged
