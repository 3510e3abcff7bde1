"""ShareGPT rows: a list of turns, each with a speaker and a text.

{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}
-> user "Hi", assistant "Hello"
"""

from collections.abc import Mapping
from typing import Any

from tunesmith.data.formats.fields import FillText, missing_key, wrong_type
from tunesmith.data.formats.messages import (
    build_message,
    convert_turns,
    convert_turns_feedback,
    convert_turns_preference,
)
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
    if tags.content_tag not in turn:
        raise missing_key(turn, field, tags.content_tag)
    content = turn[tags.content_tag]
    if not isinstance(content, str):
        raise wrong_type(f"{field}.{tags.content_tag}", "text", content)
    return build_message(turn, fill(content), field, tags)
