"""Rows whose turns are lists of messages, whatever a message looks like: conversations, pairs and rated completions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tunesmith.data.formats.completions import build_feedback, build_preference, read_margin, read_verdict
from tunesmith.data.formats.fields import (
    FillText,
    UnusableRowError,
    describe_missing,
    read_list,
    read_text,
    unknown_role,
)
from tunesmith.data.formats.marks import read_mark, with_row_marks
from tunesmith.data.formats.tools import parse_tool_calls, read_tools
from tunesmith.data.formats.turns import build_conversation
from tunesmith.data.records import Conversation, Feedback, Message, Preference, ToolCall
from tunesmith.data.sources.dataset_spec import DatasetSpec, Tags

ReadMessage = Callable[[object, str, Tags, FillText], Message]
"""(message as it stands in the row, where it stands, tags, words to fill in) -> message."""


def convert_turns(
    values: Mapping[str, Any], spec: DatasetSpec, fill: FillText, read_message: ReadMessage
) -> Conversation:
    """Return the conversation of a row. A system turn at the start wins over the system column."""
    _check_turns(values, spec.columns.messages)
    turns = _read_prompt(values, spec, fill, read_message, is_marked=True)
    return build_conversation(turns, read_tools(values, spec.columns.tools), spec.turn_order_policy)


def convert_turns_preference(
    values: Mapping[str, Any], spec: DatasetSpec, fill: FillText, read_message: ReadMessage
) -> Preference:
    """Return the pair of a row: the turns of the prompt, and for each completion a turn, some turns or a text.

    Completions that are whole conversations need no column for the prompt.
    """
    columns = spec.columns
    chosen, rejected = (
        _read_turns(_as_turns(values, column, spec.tags), column, spec.tags, fill, read_message)
        for column in (columns.chosen, columns.rejected)
    )
    return build_preference(
        _read_prompt(values, spec, fill, read_message),
        chosen,
        rejected,
        tools=read_tools(values, columns.tools),
        margin=read_margin(values, columns.margin),
        policy=spec.turn_order_policy,
    )


def convert_turns_feedback(
    values: Mapping[str, Any], spec: DatasetSpec, fill: FillText, read_message: ReadMessage
) -> Feedback:
    """Return the rated completion of a row: its last turn."""
    _check_turns(values, spec.columns.messages)
    turns = _read_prompt(values, spec, fill, read_message, is_marked=True)
    verdict = read_verdict(values, spec.columns.kto_tag)
    tools = read_tools(values, spec.columns.tools)
    return build_feedback(turns, is_desirable=verdict, tools=tools, policy=spec.turn_order_policy)


def build_message(
    turn: Mapping[str, Any],
    content: str,
    field: str,
    tags: Tags,
    *,
    calls: tuple[ToolCall, ...] = (),
    further_system_roles: tuple[str, ...] = (),
) -> Message:
    """Return the message of a turn whose words have been read; its role is what the tags say.

    Args:
        turn: As it stands in the row.
        content: Its words.
        field: Where it stands, for the reason why it cannot be used.
        tags: Names of roles and fields.
        calls: Tool calls that stand apart from the words.
        further_system_roles: Roles that are the system's besides the one of the tags.
    """
    role = turn.get(tags.role_tag)
    if role == tags.user_tag:
        read_mark(turn, field, "user")
        return Message("user", content)
    if role == tags.assistant_tag:
        return Message("assistant", content, calls, read_mark(turn, field, "assistant"))
    if role in (tags.system_tag, *further_system_roles):
        return Message("system", content)
    if role == tags.observation_tag:
        read_mark(turn, field, "tool")
        return Message("tool", content)
    if role == tags.function_tag:  # a call written as the words of a turn of its own
        calls = calls or parse_tool_calls(content, field)
        return Message("assistant", "", calls, read_mark(turn, field, "assistant"))
    raise unknown_role(turn, field, tags)


def _check_turns(values: Mapping[str, Any], column: str | None) -> None:
    """Refuse a row without turns; that it has an empty list of them is another matter."""
    if column is None or values.get(column) is None:
        raise UnusableRowError("column is missing", describe_missing(values, column))


def _read_prompt(
    values: Mapping[str, Any],
    spec: DatasetSpec,
    fill: FillText,
    read_message: ReadMessage,
    *,
    is_marked: bool = False,
) -> Sequence[Message]:
    turns: Sequence[Message] = _read_turns(values, spec.columns.messages, spec.tags, fill, read_message)
    if is_marked:
        turns = with_row_marks(turns, values, spec)
    column = spec.columns.system
    if column is None or (turns and turns[0].role == "system"):
        return turns
    return [Message("system", fill(read_text(values, column))), *turns]


def _read_turns(
    values: Mapping[str, Any], column: str | None, tags: Tags, fill: FillText, read_message: ReadMessage
) -> list[Message]:
    return [
        read_message(message, f"{column}[{place}]", tags, fill)
        for place, message in enumerate(read_list(values, column))
    ]


def _as_turns(values: Mapping[str, Any], column: str | None, tags: Tags) -> Mapping[str, Any]:
    """Return the row with the turns of a completion as a list, where it is one turn or its bare text."""
    value = None if column is None else values.get(column)
    if isinstance(value, str):
        value = {tags.role_tag: tags.assistant_tag, tags.content_tag: value}
    return {column or "": [value]} if isinstance(value, Mapping) else values
