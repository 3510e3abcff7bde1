"""Which format rows have, judged by their columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tunesmith.config.catalogue import MARK_COLUMNS, Formatting
from tunesmith.data.sources.column_names import render_names, suggest_columns
from tunesmith.errors import DataError

_LISTS_OF_TURNS = ("messages", "conversations")
_OF_ANY_FORMAT = ("system", "tools", "messages", *MARK_COLUMNS)
_PAIRS = (("prompt", "completion"), ("question", "answer"))
"""Columns of other tools that hold a question and its answer."""


@dataclass(frozen=True, slots=True)
class Detection:
    """A format, and what speaks for it."""

    formatting: Formatting
    reason: str
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns that differ from the format's defaults."""


def detect_format(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str | None], tags: Mapping[str, str], where: str
) -> Detection:
    """Return the format of rows: that of the first one which tells.

    Args:
        rows: The first rows of a data set, one at least.
        columns: Columns that the entry of the data set names.
        tags: Tags that the entry of the data set names.
        where: The file, for messages.

    Raises:
        DataError: Neither the entry nor a row speaks for a format.
    """
    for row in rows:
        found = _detect_turns(row, columns, tags) or _detect_single(row, columns)
        if found is not None:
            return found
    first = next(filter(None, rows), {})
    raise DataError(
        f"{where}: the columns {render_names(first) or '(none)'} do not say how the rows are meant. Known are "
        "messages, conversations, instruction and output, prompt and completion, question and answer, text. Set "
        f"formatting and columns in the entry of the data set.{suggest_columns(first, is_alone=len(rows) == 1)}"
    )


def _detect_turns(
    row: Mapping[str, Any], columns: Mapping[str, str | None], tags: Mapping[str, str]
) -> Detection | None:
    declared = columns.get("messages")
    candidates = (*_LISTS_OF_TURNS, columns.get("chosen") or "chosen")
    column = declared or next((name for name in candidates if isinstance(row.get(name), list)), None)
    if column is None:
        return None
    turns = row.get(column)
    first = turns[0] if isinstance(turns, list) and turns and isinstance(turns[0], Mapping) else {}
    named = {} if declared or column not in _LISTS_OF_TURNS else {"messages": column}
    for formatting, role, content in _TURNS:
        if role in first and content in first:
            reason = f"the turns in column {column!r} have {role!r} and {content!r}"
            return Detection(formatting, reason, named)
    if "tool_calls" in first and "role" in first:
        return Detection("openai", f"the turns in column {column!r} have 'role' and 'tool_calls'", named)
    formatting = "openai" if column == "messages" and not tags else "sharegpt"
    why = "the entry names tags" if tags else "it is the usual name"
    return Detection(formatting, f"column {column!r} holds turns, and {why}", named)


_TURNS: tuple[tuple[Formatting, str, str], ...] = (("openai", "role", "content"), ("sharegpt", "from", "value"))


def _detect_single(row: Mapping[str, Any], columns: Mapping[str, str | None]) -> Detection | None:
    declared = [name for name, column in columns.items() if column and name not in _OF_ANY_FORMAT]
    present = [name for name in ("instruction", "output") if name in row]
    if declared not in ([], ["prompt"]):
        return Detection("alpaca", f"the entry names the columns {', '.join(declared)}")
    if present and (not declared or "instruction" in present):
        return Detection("alpaca", f"the rows have {' and '.join(map(repr, present))}")
    if declared:
        return Detection("text", f"the entry names one column alone, prompt: {columns['prompt']}")
    return _detect_by_names(row)


def _detect_by_names(row: Mapping[str, Any]) -> Detection | None:
    for question, answer in _PAIRS:
        if isinstance(row.get(question), str) and answer in row:
            reason = f"the rows have {question!r} and {answer!r}"
            return Detection("alpaca", reason, {"prompt": question, "response": answer})
    if "chosen" in row and "rejected" in row:
        prompt = "prompt" if "prompt" in row else "instruction"
        return Detection("alpaca", "the rows have 'chosen' and 'rejected'", {"prompt": prompt})
    return Detection("text", "the rows have 'text'") if "text" in row else None
