"""Messages and tools in the shape that chat templates read."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tunesmith.data.chat.render import RenderingRefusedError
from tunesmith.data.records import Message

_NOT_JSON = (ValueError, RecursionError)
"""What reading JSON raises: for text that is none, for numbers of thousands of digits, for endless brackets."""


def template_messages(messages: Sequence[Message | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as dicts, the way an OpenAI-style server hands them to a template.

    Arguments of tool calls become objects: templates print them with `tojson`, and text would be quoted twice.

    Raises:
        RenderingRefusedError: Arguments are text that is not a JSON object.
    """
    return [_message_dict(message) if isinstance(message, Message) else _plain_dict(message) for message in messages]


def _message_dict(message: Message) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        plain["tool_calls"] = [
            {"type": "function", "function": {"name": call.name, "arguments": _arguments(call.name, call.arguments)}}
            for call in message.tool_calls
        ]
    return plain


def _arguments(name: str, text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text)
    except _NOT_JSON as error:
        raise RenderingRefusedError("tool call arguments are not JSON", f"{name}: {error}") from error
    if not isinstance(arguments, dict):
        raise RenderingRefusedError(
            "tool call arguments are not JSON", f"{name}: expected an object, found {text[:40]}"
        )
    return arguments


def _plain_dict(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of a client without nulls; OpenAI's clients send arguments as JSON text."""
    plain = {key: value for key, value in message.items() if value is not None}
    if plain.get("tool_calls"):
        plain["tool_calls"] = [_plain_call(call) for call in plain["tool_calls"]]
    return plain


def _plain_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function", call)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = _arguments(str(function.get("name")), arguments or "{}")
    return {**call, "type": "function", "function": {**function, "arguments": arguments or {}}}


def template_tools(tools: str | Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Return tool schemas as a list of `{"type": "function", "function": {...}}`; bare functions are wrapped.

    Raises:
        RenderingRefusedError: The text is not a JSON list of objects.
    """
    if tools is None:
        return None
    schemas: Any = tools
    if isinstance(tools, str):
        try:
            schemas = json.loads(tools)
        except _NOT_JSON as error:
            raise RenderingRefusedError("tools are not JSON", str(error)) from error
    if not isinstance(schemas, Sequence) or not all(isinstance(schema, Mapping) for schema in schemas):
        raise RenderingRefusedError("tools are not JSON", "expected a list of objects")
    wrapped = [
        dict(schema) if "function" in schema else {"type": "function", "function": dict(schema)} for schema in schemas
    ]
    return wrapped or None
