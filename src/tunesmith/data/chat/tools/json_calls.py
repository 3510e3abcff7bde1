"""Tool formats whose calls are JSON objects: default, glm4, ling, llama3, minimax1, mistral, qwen."""

import json
import re
from typing import Any

from tunesmith.data.chat.tools.formats import (
    EACH_CALL,
    JSON_ARGUMENTS,
    NOT_JSON,
    ParsedAnswer,
    ToolFormat,
    ToolSchemas,
    build_answer,
    build_call,
    parse_json,
)
from tunesmith.data.records import ToolCall

_DECODER = json.JSONDecoder()

_NAME_AND_ARGUMENTS = """'{"name": ' + (function['name'] | tojson) + ', "arguments": ' + """ + JSON_ARGUMENTS + " + '}'"


def _call(value: Any, arguments: str = "arguments") -> ToolCall | None:
    """Return the call that a parsed JSON object is."""
    return build_call(value.get("name"), value.get(arguments)) if isinstance(value, dict) else None


# --- default: lines `Action:` and `Action Input:` ---------------------------------------------------------------------

_ACTION = re.compile(r"^Action:[ \t]*(.+?)[ \t]*\nAction Input:[ \t]*", re.MULTILINE)


def _parse_default(text: str, tools: ToolSchemas) -> ParsedAnswer | None:
    calls: list[ToolCall | None] = []
    content = ""
    position = 0
    while (action := _ACTION.search(text, position)) is not None:
        if not calls:
            content = text[: action.start()]
        elif text[position : action.start()].strip():
            return None
        try:
            arguments, position = _DECODER.raw_decode(text, action.end())
        except NOT_JSON:
            return None
        calls.append(build_call(action[1], arguments))
    if text[position:].strip():
        return None
    return build_answer(content.removesuffix("\n"), calls)


DEFAULT = ToolFormat(
    "default",
    tools_source="""\
{{- 'Tools that can be used:\\n' -}}
{%- for tool in tools -%}
    {%- set function = tool['function'] if 'function' in tool else tool -%}
    {{- '\\n' + function['name'] + ': ' + (function['description'] or '') + '\\n' -}}
    {%- set schema = function['parameters'] or {} -%}
    {%- for name, argument in (schema['properties'] or {}) | items -%}
        {{- '- ' + name + ' (' -}}
        {%- set kind = argument['type'] or 'any' -%}
        {{- kind if kind is string else (kind | tojson) -}}
        {{- ', required' if name in (schema['required'] or []) else '' -}}
        {{- ')' + (': ' + argument['description'] if argument['description'] else '') -}}
        {{- '; one of ' + (argument['enum'] | tojson) if argument['enum'] else '' -}}
        {%- set inner = argument['items']['type'] if argument['items'] is mapping else none -%}
        {{- '; each item of type ' + (inner | string) if inner else '' -}}
        {{- '\\n' -}}
    {%- endfor -%}
{%- endfor -%}
{{- '\\nTo use a tool, write two lines:\\nAction: the name of the tool\\n' -}}
{{- 'Action Input: its arguments as a JSON object' -}}
""",
    calls_source=EACH_CALL
    + """\
    {{- ('' if loop.first else '\\n') + 'Action: ' + function['name'] + '\\nAction Input: ' -}}
    {{- """
    + JSON_ARGUMENTS
    + """ -}}
{%- endfor -%}
""",
    parse=_parse_default,
)

# --- glm4: the name, a line break, the arguments; one call at a time --------------------------------------------------


def _parse_glm4(text: str, tools: ToolSchemas) -> ParsedAnswer | None:
    lines = text.strip("\n").split("\n")
    for place, line in enumerate(lines[:-1]):
        arguments = parse_json("\n".join(lines[place + 1 :]))
        if isinstance(arguments, dict) and line.strip():
            return build_answer("\n".join(lines[:place]), [build_call(line.strip(), arguments)])
    return None


GLM4 = ToolFormat(
    "glm4",
    tools_source="""\
{{- '# 可用工具' -}}
{%- for tool in tools -%}
    {%- set function = tool['function'] if 'function' in tool else tool -%}
    {{- '\\n\\n## ' + function['name'] + '\\n\\n' + (function | tojson(indent=4)) -}}
    {{- '\\n在调用上述函数时，请使用 Json 格式表示调用的参数。' -}}
{%- endfor -%}
""",
    calls_source="""\
{%- if calls | length > 1 -%}
    {{- raise_exception('the tool format glm4 takes one call at a time') -}}
{%- endif -%}
"""
    + EACH_CALL
    + "    {{- function['name'] + '\\n' + "
    + JSON_ARGUMENTS
    + """ -}}
{%- endfor -%}
""",
    parse=_parse_glm4,
)

# --- llama3: one object or a list of them, with `parameters` ----------------------------------------------------------


def _find_json_end(text: str, opening: str) -> tuple[int, Any] | None:
    """Return the first place from which the text to its end is one JSON value that begins with `opening`."""
    place = text.find(opening)
    while place >= 0:
        value = parse_json(text[place:])
        if value is not None:
            return place, value
        place = text.find(opening, place + 1)
    return None


def _parse_llama3(text: str, tools: ToolSchemas) -> ParsedAnswer | None:
    found = [place for place in (_find_json_end(text, "["), _find_json_end(text, "{")) if place is not None]
    for place, value in sorted(found, key=lambda item: item[0]):
        calls = value if isinstance(value, list) else [value]
        answer = build_answer(text[:place].removesuffix("\n"), [_call(call, "parameters") for call in calls])
        if answer is not None:
            return answer
    return None


LLAMA3 = ToolFormat(
    "llama3",
    tools_source="""\
{{- 'Cutting Knowledge Date: December 2023\\nToday Date: ' -}}
{{- date_string if date_string is defined else '26 Jul 2024' -}}
{{- '\\n\\nYou have access to the following functions. To call a function, please respond with JSON for a ' -}}
{{- 'function call. Respond in the format {"name": function name, "parameters": dictionary of argument name and ' -}}
{{- 'its value}. Do not use variables.\\n\\n' -}}
{%- for tool in tools -%}
    {{- (tool | tojson(indent=4)) + '\\n\\n' -}}
{%- endfor -%}
""",
    calls_source="""\
{{- '[' if calls | length > 1 else '' -}}
"""
    + EACH_CALL
    + """\
    {{- ('' if loop.first else ', ') + '{"name": ' + (function['name'] | tojson) + ', "parameters": ' -}}
    {{- """
    + JSON_ARGUMENTS
    + """ + '}' -}}
{%- endfor -%}
{{- ']' if calls | length > 1 else '' -}}
""",
    parse=_parse_llama3,
)

# --- mistral: a list after the token [TOOL_CALLS], which the template prints ------------------------------------------


def _parse_mistral(text: str, tools: ToolSchemas) -> ParsedAnswer | None:
    content, mark, rest = text.partition("[TOOL_CALLS]")
    if mark:
        calls = parse_json(rest.strip())
        found = (content, calls) if isinstance(calls, list) else None
    else:  # the token was left out when the answer was decoded
        place = _find_json_end(text, "[")
        found = None if place is None else (text[: place[0]], place[1])
    if found is None:
        return None
    content, calls = found
    return build_answer(content.removesuffix(" ").removesuffix("\n"), [_call(call) for call in calls])


MISTRAL = ToolFormat(
    "mistral",
    tools_source="{{- '[AVAILABLE_TOOLS] ' + (tools | tojson) + '[/AVAILABLE_TOOLS]' -}}\n",
    calls_source="{{- '[' -}}\n"
    + EACH_CALL
    + "    {{- ('' if loop.first else ', ') + "
    + _NAME_AND_ARGUMENTS
    + """ -}}
{%- endfor -%}
{{- ']' -}}
""",
    parse=_parse_mistral,
)

# --- qwen and ling: one tagged object per call ------------------------------------------------------------------------

_TOOL_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>(?=\s*(?:<tool_call>|$))", re.DOTALL)


def _parse_qwen(text: str, tools: ToolSchemas) -> ParsedAnswer | None:
    found = list(_TOOL_CALL.finditer(text))
    if not found:
        return None
    content = text[: found[0].start()].removesuffix("\n")
    return build_answer(content, [_call(parse_json(call[1])) for call in found])


_QWEN_TOOLS = """\
{{- '# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n' -}}
{{- 'You are provided with function signatures within <tools></tools> XML tags:\\n<tools>' -}}
{%- for tool in tools -%}
    {{- '\\n' + (tool | tojson) -}}
{%- endfor -%}
{{- '\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments ' -}}
{{- 'within <tool_call></tool_call> XML tags:\\n<tool_call>\\n' -}}
{{- '{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call>' -}}
"""
_QWEN_CALLS = (
    EACH_CALL
    + """\
    {{- ('' if loop.first else '\\n') + '<tool_call>\\n{"name": "' + function['name'] + '", "arguments": ' -}}
    {{- """
    + JSON_ARGUMENTS
    + """ + '}\\n</tool_call>' -}}
{%- endfor -%}
"""
)

QWEN = ToolFormat("qwen", _QWEN_TOOLS, _QWEN_CALLS, _parse_qwen)
LING = ToolFormat("ling", _QWEN_TOOLS + "{{- '\\ndetailed thinking off' -}}\n", _QWEN_CALLS, _parse_qwen)

# --- minimax1: all objects between one pair of tags -------------------------------------------------------------------

_TOOL_CALLS = re.compile(r"<tool_calls>\n(.*)\n</tool_calls>\s*$", re.DOTALL)


def _parse_minimax1(text: str, tools: ToolSchemas) -> ParsedAnswer | None:
    found = _TOOL_CALLS.search(text)
    if found is None:
        return None
    calls = [_call(parse_json(line)) for line in found[1].split("\n") if line.strip()]
    return build_answer(text[: found.start()].removesuffix("\n"), calls)


MINIMAX1 = ToolFormat(
    "minimax1",
    tools_source="""\
{{- 'You are provided with these tools:\\n<tools>\\n' -}}
{%- for tool in tools -%}
    {{- ((tool['function'] if 'function' in tool else tool) | tojson) + '\\n' -}}
{%- endfor -%}
{{- '</tools>\\n\\nIf you need to call tools, please respond with <tool_calls></tool_calls> XML ' -}}
{{- 'tags, and provide tool-name and json-object of arguments, following the format below:\\n<tool_calls>\\n' -}}
{{- '{"name": <tool-name-1>, "arguments": <args-json-object-1>}\\n...\\n</tool_calls>' -}}
""",
    calls_source="{{- '<tool_calls>\\n' -}}\n"
    + EACH_CALL
    + "    {{- "
    + _NAME_AND_ARGUMENTS
    + """ + '\\n' -}}
{%- endfor -%}
{{- '</tool_calls>' -}}
""",
    parse=_parse_minimax1,
)
