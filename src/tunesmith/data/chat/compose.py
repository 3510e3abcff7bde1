"""The Jinja template of a wire text, with `{% generation %}` marks around each answer and its end marker."""

import re

from tunesmith.data.chat.tools import ToolFormat, resolve_tool_format
from tunesmith.data.chat.wire import Thought, Wire

_PLACE = re.compile(r"\{(bos|eos|)\}")
_TOKENS = {"bos": "bos_token", "eos": "eos_token"}
_CONTENT = "message['content']"
_ROLE = "message['role']"


def compose_template(wire: Wire) -> str:
    """Return the template, marks included. It reads `messages`, `tools`, `add_generation_prompt` and the tokens."""
    tools = resolve_tool_format(wire.tools)
    parts = [
        tools.macros,
        _printed(wire.prefix),
        _system_part(wire, tools),
        _last_question_part() if wire.thought else "",
        "{%- for message in messages[first:] -%}\n",
        _indented(_answer_part(wire, tools)),
        _indented(_question_part(wire)),
        _indented(_result_part(wire)),
        _indented(_rest_part(wire)),
        "{%- endfor -%}\n",
        _prompt_part(wire),
    ]
    return "".join(parts).removesuffix("\n")


def quoted(text: str) -> str:
    """Return a text as a literal of Jinja."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def _expression(pattern: str, content: str = "") -> str:
    """Return the Jinja expression of a pattern; empty where it prints nothing."""
    terms = []
    for place, part in enumerate(_PLACE.split(pattern)):
        if place % 2 == 0:
            terms += [quoted(part)] if part else []
        else:
            terms += [_TOKENS[part]] if part else [content] if content else []
    return " + ".join(terms)


def _printed(pattern: str, content: str = "") -> str:
    """Return the Jinja text that prints a pattern; a start token that does not exist prints nothing."""
    before, *after = pattern.split("{bos}")
    lines = [_line(before, content)]
    for part in after:
        lines += ["{{- bos_token -}}\n", _line(part, content)]
    return "".join(lines)


def _line(pattern: str, content: str) -> str:
    expression = _expression(pattern, content)
    return f"{{{{- {expression} -}}}}\n" if expression else ""


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def _system_part(wire: Wire, tools: ToolFormat) -> str:
    found = (
        "{%- set first = 0 -%}\n"
        f"{{%- set system = {quoted(wire.default_system)} -%}}\n"
        "{%- if messages and messages[0]['role'] == 'system' -%}\n"
        "    {%- set first = 1 -%}\n"
        "    {%- set system = messages[0]['content'] -%}\n"
        "{%- endif -%}\n"
    )
    listed = f"{{%- if tools -%}}\n    {{%- set listed -%}}\n{_indented(_indented(tools.tools_source))}"
    listed += "    {%- endset -%}\n"
    joint = quoted(tools.joint)
    order = f"listed + {joint} + system" if tools.tools_first else f"system + {joint} + listed"
    listed += f"    {{%- set system = {order} if system else listed -%}}\n{{%- endif -%}}\n"
    if wire.system_in_question:
        return f"{found}{listed}{{%- set opening = ({_expression(wire.system, 'system')}) if system else '' -%}}\n"
    return f"{found}{listed}{{%- if system -%}}\n{_indented(_printed(wire.system, 'system'))}{{%- endif -%}}\n"


def _last_question_part() -> str:
    """Find the place of the last question; reasoning before it is not printed. Tool results in a question are none.

    Nearly always the last question stands before the last message, which is looked at first: a loop over all messages
    takes longer than the rest of the template.
    """
    return """\
{%- set question = messages | length - 2 -%}
{%- set asked = question >= 0 and messages[question]['role'] == 'user' and messages[-1]['role'] == 'assistant' -%}
{%- if not asked or messages[question]['content'][:15] == '<tool_response>' -%}
    {%- set ns = namespace(question=-1) -%}
    {%- for message in messages -%}
        {%- set text = message['content'] if message['role'] == 'user' else '<tool_response></tool_response>' -%}
        {%- if text[:15] != '<tool_response>' or text[-16:] != '</tool_response>' -%}
            {%- set ns.question = loop.index0 -%}
        {%- endif -%}
    {%- endfor -%}
    {%- set question = ns.question if ns.question >= 0 else messages | length - 1 -%}
{%- endif -%}
"""


def _answer_part(wire: Wire, tools: ToolFormat) -> str:
    marker = _expression("{eos}" if wire.marker is None else wire.marker)
    if wire.closed_history is not None:
        marker = f"({marker} if loop.last else {_expression(wire.closed_history) or quoted('')})"
    body = _thoughtful_body(wire.thought) if wire.thought else f"{{%- set content = {_CONTENT} or '' -%}}\n"
    outside, inside = _thought_parts(wire.lead, wire.thought) if wire.thought else ("", "")
    words = _expression("{}" if wire.thought else wire.lead + "{}", "content")
    before_calls = f"(({words}) if content else '')" if wire.lead and not wire.thought else "content"
    calls = _indented(tools.calls_source)
    opening = _indented(_printed(wire.call_opening))
    return f"""\
{{%- if {_ROLE} == 'assistant' -%}}
{_indented(body)}{_indented(_printed(wire.header))}{_indented(outside)}\
    {{%- generation -%}}
{_indented(_indented(inside))}        {{%- if 'tool_calls' in message and message['tool_calls'] -%}}
            {{%- set calls = message['tool_calls'] -%}}
            {{{{- {before_calls} -}}}}
            {{{{- '\\n' if content else '' -}}}}
{_indented(_indented(opening))}{_indented(_indented(calls))}            {{{{- {marker} -}}}}
        {{%- else -%}}
            {{{{- {words} + {marker} -}}}}
        {{%- endif -%}}
    {{%- endgeneration -%}}
{_indented(_printed(wire.separator))}"""


def _thoughtful_body(thought: Thought) -> str:
    """Split an answer in reasoning and words, by the family's own tags, and say how the reasoning is printed."""
    opening, closing = map(quoted, thought.tags)
    return f"""\
{{%- set content = {_CONTENT} or '' -%}}
{{%- set reasoning = (message['reasoning_content'] or '') if 'reasoning_content' in message else '' -%}}
{{%- if not reasoning and {closing} in content -%}}
    {{%- set reasoning = content.split({closing})[0].rstrip('\\n').split({opening})[-1].lstrip('\\n') -%}}
    {{%- set content = content.split({closing})[-1].lstrip('\\n') -%}}
{{%- endif -%}}
{{%- set keeps = preserve_thinking is defined and preserve_thinking -%}}
{{%- set current = keeps or loop.index0 + first > question -%}}
{{%- set nothing = {_nothing_condition(thought)} -%}}
{{%- if current and (reasoning or nothing) and content[:1] == '\\n' -%}}
    {{%- set content = content.lstrip('\\n') -%}}
{{%- endif -%}}
"""


def _nothing_condition(thought: Thought) -> str:
    """Whether the empty form is printed, of an answer without reasoning."""
    if thought.in_history:
        return "not (reasoning and current)"
    inner = "current" if thought.inner else "(keeps or current and loop.last)"
    return f"not reasoning and {inner}"


def _thought_parts(lead: str, thought: Thought) -> tuple[str, str]:
    """Return what is printed of reasoning before the answer's mark, and after it.

    The empty form is part of the prompt in history, and when reasoning is switched off.
    """
    nothing, opening = quoted(lead + thought.nothing), quoted(lead + thought.opening)
    outside = f"""\
{{%- set silent = nothing and (not current or enable_thinking is defined and not enable_thinking) -%}}
{{%- if silent -%}}
    {{{{- {nothing} -}}}}
{{%- endif -%}}
"""
    otherwise = f"{{%- elif not silent -%}}\n    {{{{- {quoted(lead)} -}}}}\n" if lead else ""
    inside = f"""\
{{%- if nothing and not silent -%}}
    {{{{- {nothing} -}}}}
{{%- elif current and reasoning -%}}
    {{{{- {opening} + reasoning.strip('\\n') + {quoted(thought.closing)} -}}}}
{otherwise}{{%- endif -%}}
"""
    return outside, inside


def _question_part(wire: Wire) -> str:
    content = f"(opening if loop.first else '') + {_CONTENT}" if wire.system_in_question else _CONTENT
    return f"{{%- elif {_ROLE} == 'user' -%}}\n{_indented(_printed(wire.user, content))}"


def _result_part(wire: Wire) -> str:
    lines = [f"{{%- elif {_ROLE} == 'tool' -%}}\n"]
    if wire.results_opening:
        lines += ["    {%- if loop.first or loop.previtem['role'] != 'tool' -%}\n"]
        lines += [_indented(_indented(_printed(wire.results_opening))), "    {%- endif -%}\n"]
    lines.append(_indented(_printed(wire.user if wire.result is None else wire.result, _CONTENT)))
    if wire.results_closing:
        lines += ["    {%- if loop.last or loop.nextitem['role'] != 'tool' -%}\n"]
        lines += [_indented(_indented(_printed(wire.results_closing))), "    {%- endif -%}\n"]
    return "".join(lines)


def _rest_part(wire: Wire) -> str:
    system = ""
    if not wire.system_in_question:
        system = f"{{%- elif {_ROLE} == 'system' -%}}\n{_indented(_printed(wire.system, _CONTENT))}"
    return (
        f"{system}{{%- else -%}}\n"
        f"    {{{{- raise_exception('this template has no place for a turn of role ' + {_ROLE}) -}}}}\n"
        "{%- endif -%}\n"
    )


def _prompt_part(wire: Wire) -> str:
    silent = ""
    if wire.thought:
        silent = (
            "    {%- if enable_thinking is defined and not enable_thinking -%}\n"
            f"        {{{{- {quoted(wire.lead + wire.thought.nothing)} -}}}}\n    {{%- endif -%}}\n"
        )
    header = _indented(_printed(wire.header))
    if not header and not silent:
        return ""
    return f"{{%- if add_generation_prompt -%}}\n{header}{silent}{{%- endif -%}}\n"
