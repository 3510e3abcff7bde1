"""Names of columns for messages: those that are there, those that are close to what is looked for."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

_MOST_NAMES = 12
_MOST_CHARACTERS = 40
_NEAR = 0.75
"""What is less alike (`difflib`) is another word."""

_USUAL = {"prompt": "instruction", "query": "input", "response": "output"}


def render_names(names: Iterable[object]) -> str:
    """Return the names of the columns of a row; of a file without a header, they are as long as its values."""
    listed = list(names)
    shown = ", ".join(map(_render_name, listed[:_MOST_NAMES]))
    return f"{shown} and {len(listed) - _MOST_NAMES:,} more" if len(listed) > _MOST_NAMES else shown


def _render_name(name: object) -> str:
    text = str(name)
    return repr(text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}...")


def find_near_name(wanted: str, names: Iterable[object]) -> str | None:
    """Return the name that was meant by another one: with capitals, spaces around it, or a slip of the pen."""
    plain = {name.strip().casefold(): name for name in names if isinstance(name, str)}
    near = get_close_matches(wanted.casefold(), plain, n=1, cutoff=_NEAR)
    return plain[near[0]] if near else None


def suggest_columns(row: Mapping[str, Any], *, is_alone: bool) -> str:
    """Return what is probably meant by a row whose columns say nothing; empty where there is no telling.

    Args:
        row: A row with columns.
        is_alone: Whether the file has no other, so that it may be what is around the rows.
    """
    return _suggest_names(row) or (_suggest_shape(row) if is_alone else "")


def _suggest_names(row: Mapping[str, Any]) -> str:
    for turns in ("messages", "conversations"):
        column = find_near_name(turns, row)
        if column is not None and isinstance(row[column], str):
            return (
                f" The column {column!r} holds text, and a list of turns is expected: write it as JSON, not in quotes."
            )
        if column is not None and column != turns:
            return f" Perhaps `columns: {{messages: {column!r}}}` is meant."
    near = {key: found for key, usual in _USUAL.items() if (found := find_near_name(usual, row)) is not None}
    if "response" not in near:
        return ""
    return f" Perhaps `columns: {{{', '.join(f'{key}: {column!r}' for key, column in near.items())}}}` is meant."


def _suggest_shape(row: Mapping[str, Any]) -> str:
    for column, value in row.items():
        if isinstance(value, Sequence) and len(value) > 0 and all(isinstance(item, Mapping) for item in value):
            return f" If the objects in {_render_name(column)} are the rows, write that list alone into the file."
    if row and all(isinstance(value, Mapping) for value in row.values()):
        return " If the objects under these names are the rows, write them as an array, without the names."
    return ""
