"""Tool schemas and tool calls as they stand in rows."""

import json
from collections.abc import Mapping
from typing import Any

from tunesmith.data.formats.fields import UnusableRowError, wrong_type
from tunesmith.data.records import ToolCall


def read_tools(values: Mapping[str, Any], column: str | None) -> str | None:
    """Return the tool schemas of a row as JSON text, or nothing where there are none.

    The column may hold the list itself or its JSON text.
    """
    value = None if column is None else values.get(column)
    if not value:
        return None
    if isinstance(value, str):
        parsed = _parse_json(value, f"{column}: ")
        text = value
    else:
        parsed = value
        text = _write_json(value, column or "tools")
    if not isinstance(parsed, list) or not all(isinstance(schema, Mapping) for schema in parsed):
        raise wrong_type(column or "tools", "a list of tool schemas", parsed)
    return text if parsed else None


def parse_tool_calls(text: str, field: str) -> tuple[ToolCall, ...]:
    """Return the calls that a JSON text holds: one `{"name", "arguments"}` or a list of them."""
    parsed = _parse_json(text, f"{field}: ")
    calls = parsed if isinstance(parsed, list) else [parsed]
    if not calls:
        raise UnusableRowError("tool call is malformed", f"{field}: the list of calls is empty")
    return tuple(convert_tool_call(call, field) for call in calls)


def convert_tool_call(call: object, field: str) -> ToolCall:
    """Return one call; OpenAI's wrapping (`{"type": "function", "function": ...}`) is taken off.

    Arguments may be an object or its JSON text; they are not quoted twice.
    """
    if isinstance(call, Mapping) and isinstance(call.get("function"), Mapping):
        call = call["function"]
    if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
        raise UnusableRowError("tool call is malformed", f"{field}: expected an object with a name, found {call!r:.60}")
    arguments = call.get("arguments", {})
    if isinstance(arguments, str):
        if not isinstance(_parse_json(arguments or "{}", f"{field}.arguments: "), dict):
            raise UnusableRowError("tool call is malformed", f"{field}.arguments: expected an object")
        return ToolCall(call["name"], arguments or "{}")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        raise UnusableRowError("tool call is malformed", f"{field}.arguments: expected an object")
    return ToolCall(call["name"], _write_json(arguments, f"{field}.arguments"))


def _parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UnusableRowError("tool text is not JSON", f"{where}{error.msg} at character {error.pos}") from error
    except ValueError as error:  # a number of thousands of digits
        raise UnusableRowError("tool text is not JSON", f"{where}{error}") from error


def _write_json(value: object, field: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError as error:  # dates, bytes and the like, as columnar files have them
        raise UnusableRowError("wrong type", f"{field}: cannot be written as JSON: {error}") from error
