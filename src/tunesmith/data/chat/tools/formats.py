"""What a tool format is: how tools and calls are printed, and how calls are read back from an answer."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tunesmith.data.records import ToolCall

NOT_JSON = (ValueError, RecursionError)
"""What reading JSON that a model wrote raises: for text that is none, for numbers of thousands of digits, for endless
brackets."""


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """An answer of a model, taken apart."""

    content: str
    """The words outside of calls."""

    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""


ToolSchemas = Sequence[Mapping[str, Any]]
"""Tool schemas, bare or as `{"type": "function", "function": {...}}`."""

Parse = Callable[[str, ToolSchemas], ParsedAnswer | None]
"""Reads the words and calls of an answer; nothing where the text holds no well-formed call."""


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """One way of writing tools and calls.

    The two Jinja texts stand inside chat templates and are saved with them, so that a server prints the same.
    """

    name: str
    tools_source: str
    """Prints `tools`, a list of `{"type": "function", "function": {...}}`, as part of the system message."""

    calls_source: str
    """Prints `calls`, a list of `{"type": "function", "function": {"name", "arguments"}}`, inside an answer."""

    parse: Parse
    macros: str = ""
    """Jinja macros that the two texts use."""

    joint: str = "\n\n"
    """What stands between the system message and the tools."""

    tools_first: bool = False
    """Whether the tools stand before the system message."""


EACH_CALL = """\
{%- for call in calls -%}
    {%- set function = call['function'] if 'function' in call else call -%}
"""
"""The beginning of a loop over calls; arguments are `function['arguments']`, an object or its JSON text."""

JSON_ARGUMENTS = "(function['arguments'] if function['arguments'] is string else (function['arguments'] | tojson))"
"""Jinja expression for the arguments of a call as JSON text."""


def build_call(name: object, arguments: object) -> ToolCall | None:
    """Return a call, or nothing where a name or an object of arguments is not what was read."""
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    return ToolCall(name, json.dumps(arguments, ensure_ascii=False))


def build_answer(content: str, calls: Sequence[ToolCall | None]) -> ParsedAnswer | None:
    """Return the answer, or nothing where there is no call or one of them is malformed."""
    whole = [call for call in calls if call is not None]
    if not whole or len(whole) < len(calls):
        return None
    return ParsedAnswer(content, tuple(whole))


def parse_json(text: str) -> Any:
    """Return the value of a JSON text, or nothing where it is not JSON."""
    try:
        return json.loads(text)
    except NOT_JSON:
        return None


def find_types(tools: ToolSchemas, name: str) -> Mapping[str, Any]:
    """Return the schemas of the arguments of a tool by argument; empty where the tool is not known."""
    for tool in tools:
        function = tool.get("function", tool)
        if function.get("name") == name:
            properties = (function.get("parameters") or {}).get("properties") or {}
            return properties if isinstance(properties, Mapping) else {}
    return {}


def read_value(text: str, schema: object) -> Any:
    """Return the value of an argument that is written as bare text: strings as they are, everything else as JSON.

    `12` may be a number or a string. The schema of the argument decides; without one, what reads as JSON is not text.
    """
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind == "string":
        return text
    try:
        value = json.loads(text)
    except NOT_JSON:
        return text
    return text if isinstance(value, str) else value
