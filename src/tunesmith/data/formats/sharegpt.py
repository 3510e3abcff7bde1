"""ShareGPT rows: a list of turns, each with a speaker and a text.

{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}
-> user "Hi", assistant "Hello"
"""

from collections.abc import Mapping
from typing import Any

from tunesmith.data.formats.fields import FillText, missing_key, unknown_role, wrong_type
from tunesmith.data.formats.marks import read_mark
from tunesmith.data.formats.messages import convert_turns, convert_turns_feedback, convert_turns_preference
from tunesmith.data.formats.tools import parse_tool_calls
from tunesmith.data.records import Conversation, Feedback, Message, Preference
from tunesmith.data.sources.dataset_spec import DatasetSpec, Tags


def convert_sharegpt(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> Conversation:
    """Return the conversation of a row. A system turn at the start wins over the system column."""
    return convert_turns(values, spec, fill, _convert_turn)


def convert_sharegpt_preference(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> Preference:
    """Return the pair of a row."""
    return convert_turns_preference(values, spec, fill, _convert_turn)


def convert_sharegpt_feedback(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> Feedback:
    """Return the rated completion of a row."""
    return convert_turns_feedback(values, spec, fill, _convert_turn)


def _convert_turn(turn: object, field: str, tags: Tags, fill: FillText) -> Message:
    if not isinstance(turn, Mapping):
        raise wrong_type(field, "an object", turn)
    role = turn.get(tags.role_tag)
    if tags.content_tag not in turn:
        raise missing_key(turn, field, tags.content_tag)
    content = turn[tags.content_tag]
    if not isinstance(content, str):
        raise wrong_type(f"{field}.{tags.content_tag}", "text", content)
    content = fill(content)
    if role == tags.user_tag:
        read_mark(turn, field, "user")
        return Message("user", content)
    if role == tags.assistant_tag:
        return Message("assistant", content, trained=read_mark(turn, field, "assistant"))
    if role == tags.system_tag:
        return Message("system", content)
    if role == tags.observation_tag:
        read_mark(turn, field, "tool")
        return Message("tool", content)
    if role == tags.function_tag:
        calls = parse_tool_calls(content, field)
        return Message("assistant", "", calls, read_mark(turn, field, "assistant"))
    raise unknown_role(turn, field, tags)
