"""Reading the fields of a raw row, and the reasons for which a row cannot be used."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tunesmith.data.records import Dropped
from tunesmith.data.sources.column_names import render_names
from tunesmith.data.sources.dataset_spec import Tags
from tunesmith.data.sources.problems import UnreadableValue

FillText = Callable[[str], str]
"""Puts the words of `row_variables` into a text."""


class UnusableRowError(Exception):
    """The row cannot become a record; caught where formats are built and turned into `Dropped`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.dropped = Dropped(reason, detail)


def wrong_type(field: str, expected: str, found: object) -> UnusableRowError:
    """Return the error for a field of the wrong type, naming field, what is expected and what is there."""
    shown = repr(found)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return UnusableRowError("wrong type", f"{field}: expected {expected}, found {_type_name(found)} ({shown})")


def _type_name(value: object) -> str:
    names: dict[type, str] = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
        str: "text",
        UnreadableValue: "what cannot be used",
    }
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def describe_missing(values: Mapping[str, Any], column: str | None) -> str:
    """Return what is wrong with a column that gave nothing; where it is not there, with the columns that are."""
    if column in values:
        return f"column {column!r} is empty"
    return f"column {column!r} is missing; the row has {render_names(values) or 'no columns'}"


def unknown_role(message: Mapping[str, Any], field: str, tags: Tags) -> UnusableRowError:
    """Return the error for a message whose speaker is none of the tags."""
    if tags.role_tag not in message:
        return missing_key(message, field, tags.role_tag)
    known = (tags.user_tag, tags.assistant_tag, tags.system_tag, tags.observation_tag, tags.function_tag)
    role = message[tags.role_tag]
    return UnusableRowError(
        "unknown role", f"{field}.{tags.role_tag} is {role!r}; known are {', '.join(map(repr, known))}"
    )


def missing_key(message: Mapping[str, Any], field: str, key: str) -> UnusableRowError:
    """Return the error for a message without something that every message has."""
    return UnusableRowError("wrong type", f"{field}.{key} is missing; there are {render_names(message) or 'no keys'}")


def read_text(values: Mapping[str, Any], column: str | None) -> str:
    """Return the text of a column; empty where there is no such column or it holds nothing."""
    if column is None:
        return ""
    value = values.get(column)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise wrong_type(column, "text", value)


def read_required_text(values: Mapping[str, Any], column: str | None) -> str:
    """Return the text of a column that every row has."""
    if column is None or values.get(column) is None:
        raise UnusableRowError("column is missing", describe_missing(values, column))
    return read_text(values, column)


def read_flag(values: Mapping[str, Any], column: str) -> bool | None:
    """Return whether a column says yes: true or false, 1 or 0, also as text; nothing where it is empty.

    Files without types (CSV) have only text, and numbers are what many tools write for a label.
    """
    value = values.get(column)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and (word := value.strip().lower()) in _FLAGS:
        return _FLAGS[word]
    raise wrong_type(column, "true or false, 1 or 0", value)


_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def read_list(values: Mapping[str, Any], column: str | None, field: str = "") -> Sequence[Any]:
    """Return the list of a column; empty where there is no such column or it holds nothing.

    Args:
        values: The row, or a part of it.
        column: Name of the list.
        field: Where it stands, for messages; the column itself when not given.
    """
    value = None if column is None else values.get(column)
    if value is None:
        return ()
    if isinstance(value, list | tuple):
        return value
    raise wrong_type(field or column or "", "a list", value)


MALFORMED = "malformed row"
"""Of what stands in a file where a row should be, and is none."""

BAD_ROWS = frozenset(
    {
        MALFORMED,
        "column is missing",
        "wrong type",
        "no answer",
        "no question",
        "no completion",
        "no verdict",
        "unknown role",
        "tool call is malformed",
        "tool text is not JSON",
        "marks of a turn contradict each other",
        "mark on a turn that is not an answer",
        "marks do not fit the turns",
    }
)
"""Reasons that say that a row is not what its data set says; the others are about rows that teach nothing."""


def build_fill(variables: Sequence[tuple[str, str]]) -> FillText:
    """Return a function that replaces `{{name}}` by the word given for it.

    Names that are not given stay as they are: double braces are ordinary text in code and templates. What is filled in
    is not searched again.
    """
    if not variables:
        return _unchanged
    words = dict(variables)
    pattern = re.compile(r"\{\{\s*(" + "|".join(map(re.escape, words)) + r")\s*\}\}")
    return lambda text: pattern.sub(lambda match: words[match[1]], text) if "{{" in text else text


def _unchanged(text: str) -> str:
    return text
