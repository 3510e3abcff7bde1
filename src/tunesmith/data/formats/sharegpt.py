"""ShareGPT rows: a list of turns, each with a speaker and a text.

{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}
-> user "Hi", assistant "Hello"
"""

from collections.abc import Mapping
from typing import Any

from tunesmith.data.formats.fields import FillText, UnusableRowError, read_list, read_text, wrong_type
from tunesmith.data.formats.tools import parse_tool_calls, read_tools
from tunesmith.data.formats.turns import build_conversation
from tunesmith.data.records import Conversation, Message
from tunesmith.data.sources.dataset_spec import DatasetSpec, Tags


def convert_sharegpt(values: Mapping[str, Any], spec: DatasetSpec, fill: FillText) -> Conversation:
    """Return the conversation of a row. A system turn at the start wins over the system column."""
    columns = spec.columns
    turns = [
        _convert_turn(turn, f"{columns.messages}[{place}]", spec.tags, fill)
        for place, turn in enumerate(read_list(values, columns.messages))
    ]
    if columns.system is not None and (not turns or turns[0].role != "system"):
        turns.insert(0, Message("system", fill(read_text(values, columns.system))))
    return build_conversation(turns, read_tools(values, columns.tools))


def _convert_turn(turn: object, field: str, tags: Tags, fill: FillText) -> Message:
    if not isinstance(turn, Mapping):
        raise wrong_type(field, "an object", turn)
    role = turn.get(tags.role_tag)
    content = turn.get(tags.content_tag)
    if not isinstance(content, str):
        raise wrong_type(f"{field}.{tags.content_tag}", "text", content)
    content = fill(content)
    if role == tags.user_tag:
        return Message("user", content)
    if role == tags.assistant_tag:
        return Message("assistant", content)
    if role == tags.system_tag:
        return Message("system", content)
    if role == tags.observation_tag:
        return Message("tool", content)
    if role == tags.function_tag:
        return Message("assistant", "", parse_tool_calls(content, field))
    raise UnusableRowError("unknown role", f"{field}.{tags.role_tag} is {role!r}")
