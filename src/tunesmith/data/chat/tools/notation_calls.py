"""Tool formats with a notation of their own: lfm2 writes calls as Python does, gemma4 as `call:name{key:value}`."""

import ast
import json
import re
from collections.abc import Sequence
from typing import Any

from tunesmith.data.chat.tools.formats import (
    EACH_CALL,
    NOT_JSON,
    ParsedAnswer,
    ToolFormat,
    ToolSchemas,
    build_answer,
    build_call,
)
from tunesmith.data.records import ToolCall

# --- lfm2 -------------------------------------------------------------------------------------------------------------

_LFM2_CALLS = re.compile(r"<\|tool_call_start\|>(.*?)<\|tool_call_end\|>", re.DOTALL)
_CONSTANTS = {"true": True, "false": False, "null": None}


def _parse_lfm2(text: str, tools: ToolSchemas) -> ParsedAnswer | None:
    found = _LFM2_CALLS.search(text)
    if found is None:
        return None
    try:
        body = ast.parse(found[1].strip(), mode="eval").body
        nodes: Sequence[ast.expr] = body.elts if isinstance(body, ast.List) else [body]
        calls = [_python_call(node) for node in nodes]
    except (SyntaxError, TypeError, *NOT_JSON):  # sets and bytes are literals of Python, and not of JSON
        return None
    return build_answer((text[: found.start()] + text[found.end() :]).removesuffix("\n"), calls)


def _python_call(node: ast.expr) -> ToolCall | None:
    if not isinstance(node, ast.Call) or node.args:
        return None
    return build_call(
        ast.unparse(node.func), {str(keyword.arg): _python_value(keyword.value) for keyword in node.keywords}
    )


def _python_value(node: ast.expr) -> Any:
    """Return the value of a literal; JSON's `true`, `false` and `null` are literals here too.

    Raises:
        ValueError: It is not a literal.
    """
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    if isinstance(node, ast.List):
        return [_python_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [key for key in node.keys if key is not None]
        return {str(_python_value(key)): _python_value(value) for key, value in zip(keys, node.values, strict=True)}
    return ast.literal_eval(node)


LFM2 = ToolFormat(
    "lfm2",
    tools_source="""\
{{- 'List of tools: <|tool_list_start|>[' -}}
{%- for tool in tools -%}
    {{- ('' if loop.first else ', ') + ((tool['function'] if 'function' in tool else tool) | tojson) -}}
{%- endfor -%}
{{- ']<|tool_list_end|>' -}}
""",
    calls_source="{{- '<|tool_call_start|>[' -}}\n"
    + EACH_CALL
    + """\
    {{- ('' if loop.first else ', ') + function['name'] + '(' -}}
    {%- for key, value in function['arguments'] | items -%}
        {{- ('' if loop.first else ', ') + key + '=' + (value | tojson) -}}
    {%- endfor -%}
    {{- ')' -}}
{%- endfor -%}
{{- ']<|tool_call_end|>' -}}
""",
    parse=_parse_lfm2,
    joint="\n",
)

# --- gemma4 -----------------------------------------------------------------------------------------------------------

_QUOTE = '<|"|>'
_GEMMA4_CALL = re.compile(r"<\|tool_call>call:([^{]+)")
_GEMMA4_WORD = re.compile(r"[^,:\[\]{}]+")


class _Reader:
    """Reads values of Gemma 4's notation: `{key:value,...}`, `[value,...]`, quoted strings, numbers, constants."""

    def __init__(self, text: str, place: int) -> None:
        self.text = text
        self.place = place

    def take(self, expected: str) -> bool:
        """Step over a text where it stands here."""
        found = self.text.startswith(expected, self.place)
        self.place += len(expected) if found else 0
        return found

    def read_object(self) -> dict[str, Any]:
        """Read an object; its opening brace is behind."""
        values: dict[str, Any] = {}
        while not self.take("}"):
            key = self.read_text() if self.take(_QUOTE) else self._read_word()
            if not self.take(":"):
                raise ValueError(f"no value of {key!r}")
            values[key] = self.read_value()
            self.take(",")
        return values

    def read_text(self) -> str:
        """Read a string; its opening quote is behind."""
        end = self.text.find(_QUOTE, self.place)
        if end < 0:
            raise ValueError("a string is not closed")
        start, self.place = self.place, end + len(_QUOTE)
        return self.text[start:end]

    def read_value(self) -> Any:
        """Read a value of any kind."""
        if self.take(_QUOTE):
            return self.read_text()
        if self.take("{"):
            return self.read_object()
        if self.take("["):
            items = []
            while not self.take("]"):
                items.append(self.read_value())
                self.take(",")
            return items
        word = self._read_word()
        return None if word == "None" else json.loads(word)

    def _read_word(self) -> str:
        word = _GEMMA4_WORD.match(self.text, self.place)
        if word is None:
            raise ValueError(f"unexpected end or sign at character {self.place}")
        self.place = word.end()
        return word[0]


def _parse_gemma4(text: str, tools: ToolSchemas) -> ParsedAnswer | None:
    calls: list[ToolCall | None] = []
    content = text
    place = 0
    while (call := _GEMMA4_CALL.search(text, place)) is not None:
        if not calls:
            content = text[: call.start()]
        reader = _Reader(text, call.end())
        try:
            closed = reader.take("{")
            calls.append(build_call(call[1], reader.read_object() if closed else None))
            closed = reader.take("<tool_call|>")
        except NOT_JSON:
            return None
        if not closed:
            return None
        place = reader.place
    return build_answer(content.removesuffix("\n"), calls)


GEMMA4 = ToolFormat(
    "gemma4",
    tools_source="""\
{%- for tool in tools -%}
    {%- set function = tool['function'] if 'function' in tool else tool -%}
    {{- '<|tool>declaration:' + function['name'] + '{description:<|"|>' + (function['description'] or '') + '<|"|>' -}}
    {{- ',parameters:' + gemma4_value(function['parameters']) if function['parameters'] else '' -}}
    {{- '}<tool|>' -}}
{%- endfor -%}
""",
    calls_source=EACH_CALL
    + """\
    {{- '<|tool_call>call:' + function['name'] + gemma4_value(function['arguments']) + '<tool_call|>' -}}
{%- endfor -%}
""",
    parse=_parse_gemma4,
    macros="""\
{%- macro gemma4_value(value) -%}
    {%- if value is string -%}
        {{- '<|"|>' + value + '<|"|>' -}}
    {%- elif value is mapping -%}
        {{- '{' -}}
        {%- for key, item in value | items -%}
            {{- ('' if loop.first else ',') + key + ':' + gemma4_value(item) -}}
        {%- endfor -%}
        {{- '}' -}}
    {%- elif value is sequence -%}
        {{- '[' -}}
        {%- for item in value -%}
            {{- ('' if loop.first else ',') + gemma4_value(item) -}}
        {%- endfor -%}
        {{- ']' -}}
    {%- else -%}
        {{- value | tojson -}}
    {%- endif -%}
{%- endmacro -%}
""",
    joint="",
)
