"""Values of other types as text, for runs that ask for it."""

import json
from collections.abc import Mapping
from typing import Any

from tunesmith.data.sources.dataset_spec import DatasetSpec
from tunesmith.data.sources.problems import UnreadableValue


def stringify_row(values: Mapping[str, Any], spec: DatasetSpec) -> dict[str, Any]:
    """Return a row whose texts are text: numbers, true and false, lists and objects as JSON.

    Only what a text is expected of is touched: columns of text, the contents of turns, pairs of a history. Nothing
    (null) stays nothing, and lists of typed parts stay what they are.
    """
    columns, row = spec.columns, dict(values)
    for column in (columns.prompt, columns.query, columns.response, columns.system):
        if column in row:
            row[column] = _as_text(row[column])
    for column in (columns.chosen, columns.rejected):
        if column in row:
            row[column] = _completion(row[column], spec)
    if columns.history in row and isinstance(row[columns.history], list):
        row[columns.history] = [_pair(pair) for pair in row[columns.history]]
    if columns.messages in row and isinstance(row[columns.messages], list):
        tag = spec.tags.content_tag
        row[columns.messages] = [_turn(turn, tag) for turn in row[columns.messages]]
    return row


def _as_text(value: object) -> object:
    if value is None or isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=_plain)
    except TypeError:
        return value  # refused, as without this setting


def _plain(value: object) -> str:
    """Return dates and the like, as columnar files have them, as text."""
    if isinstance(value, UnreadableValue):
        raise TypeError(value)
    return str(value)


def _completion(value: object, spec: DatasetSpec) -> object:
    """Return a side of a pair: where rows are turns, it may be one or some of them."""
    if spec.formatting != "alpaca" and isinstance(value, list):
        return [_turn(turn, spec.tags.content_tag) for turn in value]
    if spec.formatting != "alpaca" and isinstance(value, Mapping):
        return _turn(value, spec.tags.content_tag)
    return _as_text(value)


def _pair(pair: object) -> object:
    return [_as_text(text) for text in pair] if isinstance(pair, list | tuple) else pair


def _turn(turn: object, tag: str) -> object:
    if not isinstance(turn, Mapping) or tag not in turn or _is_of_parts(turn[tag]):
        return turn
    return {**turn, tag: _as_text(turn[tag])}


def _is_of_parts(content: object) -> bool:
    """Return whether a content is a list of typed parts, as OpenAI has them."""
    return isinstance(content, list) and bool(content) and all(isinstance(p, Mapping) and "type" in p for p in content)
