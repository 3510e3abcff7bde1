"""Tool formats that write every argument between tags of its own: glm4_moe, minimax2, qwen3_5, seed_oss.

Strings stand there bare and everything else as JSON, so that only the schema of a tool tells `12` from `"12"`.
"""

import re
from typing import NamedTuple

from tunesmith.data.chat.tools.formats import (
    EACH_CALL,
    ParsedAnswer,
    ToolFormat,
    ToolSchemas,
    build_answer,
    build_call,
    find_types,
    read_value,
)

_BARE = "(value if value is string else (value | tojson))"


class _Tags(NamedTuple):
    """How calls are found in a text."""

    call: re.Pattern[str]
    """One call: group 1 is its name, group 2 its arguments."""

    argument: re.Pattern[str]
    """One argument: group 1 is its name, group 2 its value."""


def _parse_tagged(text: str, tools: ToolSchemas, tags: _Tags, opening: str) -> ParsedAnswer | None:
    place = text.find(opening)
    if place < 0:
        return None
    calls = []
    for call in tags.call.finditer(text, place):
        types = find_types(tools, call[1])
        arguments = {
            argument[1]: read_value(argument[2], types.get(argument[1])) for argument in tags.argument.finditer(call[2])
        }
        calls.append(build_call(call[1], arguments))
    return build_answer(text[:place].removesuffix("\n"), calls)


_GLM4_MOE = _Tags(
    re.compile(r"<tool_call>([^\n<]+)\s*(.*?)\n?</tool_call>(?=\s*(?:<tool_call>|$))", re.DOTALL),
    re.compile(r"<arg_key>(.*?)</arg_key>\n?<arg_value>(.*?)</arg_value>(?=\n?(?:<arg_key>|$))", re.DOTALL),
)
_MINIMAX2 = _Tags(
    re.compile(r'<invoke name="(.*?)">\n?(.*?)</invoke>(?=\s*(?:<invoke|</minimax:tool_call>))', re.DOTALL),
    re.compile(r'<parameter name="(.*?)">(.*?)</parameter>(?=\n?(?:<parameter|$))', re.DOTALL),
)
_QWEN3_5 = _Tags(
    re.compile(
        r"<tool_call>\s*<function=([^>\n]+)>\n?(.*?)</function>\s*</tool_call>(?=\s*(?:<tool_call>|$))", re.DOTALL
    ),
    re.compile(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>(?=\n?(?:<parameter=|$))", re.DOTALL),
)
_SEED_OSS = _Tags(
    re.compile(
        r"<seed:tool_call>\s*<function=([^>\n]+)>\n?(.*?)</function>\s*</seed:tool_call>(?=\s*(?:<seed:tool_call>|$))",
        re.DOTALL,
    ),
    re.compile(r"<parameter=([^>\n]+)>(.*?)</parameter>(?=\n?(?:<parameter=|$))", re.DOTALL),
)


def _parse_glm4_moe(text: str, tools: ToolSchemas) -> ParsedAnswer | None:
    return _parse_tagged(text, tools, _GLM4_MOE, "<tool_call>")


def _parse_minimax2(text: str, tools: ToolSchemas) -> ParsedAnswer | None:
    return _parse_tagged(text, tools, _MINIMAX2, "<minimax:tool_call>")


def _parse_qwen3_5(text: str, tools: ToolSchemas) -> ParsedAnswer | None:
    return _parse_tagged(text, tools, _QWEN3_5, "<tool_call>")


def _parse_seed_oss(text: str, tools: ToolSchemas) -> ParsedAnswer | None:
    return _parse_tagged(text, tools, _SEED_OSS, "<seed:tool_call>")


GLM4_MOE = ToolFormat(
    "glm4_moe",
    tools_source="""\
{{- '# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n' -}}
{{- 'You are provided with function signatures within <tools></tools> XML tags:\\n<tools>' -}}
{%- for tool in tools -%}
    {{- '\\n' + (tool | tojson) -}}
{%- endfor -%}
{{- '\\n</tools>\\n\\nFor each function call, output the function name and arguments within the following ' -}}
{{- 'XML format:\\n<tool_call>{function-name}\\n<arg_key>{arg-key-1}</arg_key>\\n' -}}
{{- '<arg_value>{arg-value-1}</arg_value>\\n<arg_key>{arg-key-2}</arg_key>\\n' -}}
{{- '<arg_value>{arg-value-2}</arg_value>\\n...\\n</tool_call>' -}}
""",
    calls_source=EACH_CALL
    + """\
    {{- ('' if loop.first else '\\n') + '<tool_call>' + function['name'] + '\\n' -}}
    {%- for key, value in function['arguments'] | items -%}
        {{- '<arg_key>' + key + '</arg_key>\\n<arg_value>' + """
    + _BARE
    + """ + '</arg_value>\\n' -}}
    {%- endfor -%}
    {{- '</tool_call>' -}}
{%- endfor -%}
""",
    parse=_parse_glm4_moe,
)

MINIMAX2 = ToolFormat(
    "minimax2",
    tools_source="""\
{{- '# Tools\\nYou may call one or more tools to assist with the user query.\\n' -}}
{{- 'Here are the tools available in JSONSchema format:\\n\\n<tools>\\n' -}}
{%- for tool in tools -%}
    {{- '<tool>' + ((tool['function'] if 'function' in tool else tool) | tojson) + '</tool>\\n' -}}
{%- endfor -%}
{{- '</tools>\\n\\nWhen making tool calls, use XML format to invoke tools and pass parameters:\\n' -}}
{{- '\\n<minimax:tool_call>\\n<invoke name="tool-name-1">\\n' -}}
{{- '<parameter name="param-key-1">param-value-1</parameter>\\n' -}}
{{- '<parameter name="param-key-2">param-value-2</parameter>\\n...\\n</invoke>\\n</minimax:tool_call>' -}}
""",
    calls_source="{{- '<minimax:tool_call>\\n' -}}\n"
    + EACH_CALL
    + """\
    {{- '<invoke name="' + function['name'] + '">\\n' -}}
    {%- for key, value in function['arguments'] | items -%}
        {{- '<parameter name="' + key + '">' + """
    + _BARE
    + """ + '</parameter>\\n' -}}
    {%- endfor -%}
    {{- '</invoke>\\n' -}}
{%- endfor -%}
{{- '</minimax:tool_call>' -}}
""",
    parse=_parse_minimax2,
)

QWEN3_5 = ToolFormat(
    "qwen3_5",
    tools_source="""\
{{- '# Tools\\n\\nYou have access to the following functions:\\n\\n<tools>' -}}
{%- for tool in tools -%}
    {{- '\\n' + (tool | tojson) -}}
{%- endfor -%}
{{- '\\n</tools>\\n\\nIf you choose to call a function ONLY reply in the following format with NO suffix:\\n\\n' -}}
{{- '<tool_call>\\n<function=example_function_name>\\n<parameter=example_parameter_1>\\nvalue_1\\n</parameter>\\n' -}}
{{- '<parameter=example_parameter_2>\\nThis is the value for the second parameter\\nthat can span\\n' -}}
{{- 'multiple lines\\n</parameter>\\n</function>\\n</tool_call>\\n\\n<IMPORTANT>\\nReminder:\\n' -}}
{{- '- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested ' -}}
{{- 'within <tool_call></tool_call> XML tags\\n- Required parameters MUST be specified\\n' -}}
{{- '- You may provide optional reasoning for your function call in natural language BEFORE the function call, but ' -}}
{{- 'NOT after\\n- If there is no function call available, answer the question like normal with your current ' -}}
{{- 'knowledge and do not tell the user about function calls\\n</IMPORTANT>' -}}
""",
    calls_source=EACH_CALL
    + """\
    {{- ('' if loop.first else '\\n') + '<tool_call>\\n<function=' + function['name'] + '>\\n' -}}
    {%- for key, value in function['arguments'] | items -%}
        {{- '<parameter=' + key + '>\\n' + """
    + _BARE
    + """ + '\\n</parameter>\\n' -}}
    {%- endfor -%}
    {{- '</function>\\n</tool_call>' -}}
{%- endfor -%}
""",
    parse=_parse_qwen3_5,
    tools_first=True,
)

SEED_OSS = ToolFormat(
    "seed_oss",
    tools_source="""\
{{- 'Tool List:\\nYou are authorized to use the following tools (described in JSON Schema format). Before ' -}}
{{- 'performing any task, you must decide how to call them based on the descriptions and parameters of these ' -}}
{{- 'tools.\\n' + (tools | tojson) + '\\n工具调用请遵循如下格式:\\n' -}}
{{- '<seed:tool_call>\\n<function=example_function_name>\\n' -}}
{{- '<parameter=example_parameter_1>value_1</parameter>\\n<parameter=example_parameter_2>This is the value for ' -}}
{{- 'the second parameter\\nthat can span\\nmultiple lines</parameter>\\n</function>\\n</seed:tool_call>\\n' -}}
""",
    calls_source=EACH_CALL
    + """\
    {{- ('' if loop.first else '\\n') + '<seed:tool_call>\\n<function=' + function['name'] + '>\\n' -}}
    {%- for key, value in function['arguments'] | items -%}
        {{- '<parameter=' + key + '>' + """
    + _BARE
    + """ + '</parameter>\\n' -}}
    {%- endfor -%}
    {{- '</function>\\n</seed:tool_call>' -}}
{%- endfor -%}
""",
    parse=_parse_seed_oss,
)
