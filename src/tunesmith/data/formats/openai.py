"""OpenAI messages: roles, contents, tool calls, and optionally a weight per answer.

{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
-> user "Hi", assistant "Hello"
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tunesmith.data.formats.fields import FillText, UnusableRowError, missing_key, read_list, wrong_type
from tunesmith.data.formats.messages import (
    build_message,
    convert_turns,
    convert_turns_feedback,
    convert_turns_preference,
)
from tunesmith.data.formats.tools import convert_tool_call
from tunesmith.data.records import Conversation, Feedback, Message, Preference, ToolCall
from tunesmith.data.sources.dataset_spec import DatasetSpec, Tags


def convert_openai(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> Conversation:
    """Return the conversation of a row; contents are taken over to the letter."""
    return convert_turns(values, spec, fill, _convert_message)


def convert_openai_preference(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> Preference:
    """Return the pair of a row."""
    return convert_turns_preference(values, spec, fill, _convert_message)


def convert_openai_feedback(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> Feedback:
    """Return the rated completion of a row."""
    return convert_turns_feedback(values, spec, fill, _convert_message)


def _convert_message(message: object, field: str, tags: Tags, fill: FillText) -> Message:
    if not isinstance(message, Mapping):
        raise wrong_type(field, "an object", message)
    calls = _read_calls(message, field)
    if not calls and tags.content_tag not in message:
        raise missing_key(message, field, tags.content_tag)
    content = fill(_read_content(message.get(tags.content_tag), f"{field}.{tags.content_tag}", optional=bool(calls)))
    return build_message(message, content, field, tags, calls=calls, further_system_roles=("developer",))


def _read_content(content: object, field: str, *, optional: bool) -> str:
    if isinstance(content, str):
        return content
    if content is None and optional:
        return ""
    if isinstance(content, Sequence):
        return "".join(_read_part(part, f"{field}[{place}]") for place, part in enumerate(content))
    raise wrong_type(field, "text", content)


def _read_part(part: object, field: str) -> str:
    if not isinstance(part, Mapping):
        raise wrong_type(field, "an object with a type", part)
    if part.get("type") != "text":
        raise UnusableRowError("media is not supported yet", f"{field} is of type {part.get('type')!r}")
    text = part.get("text")
    if not isinstance(text, str):
        raise wrong_type(f"{field}.text", "text", text)
    return text


def _read_calls(message: Mapping[str, Any], field: str) -> tuple[ToolCall, ...]:
    field = f"{field}.tool_calls"
    calls = read_list(message, "tool_calls", field)
    return tuple(convert_tool_call(call, f"{field}[{place}]") for place, call in enumerate(calls))
