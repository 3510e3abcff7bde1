import json

import pytest

from tests.unit.data.chat.conversations import settings, template_of, tokenizer_of
from tunesmith.data.chat import resolve_template
from tunesmith.data.chat.render import RenderingRefusedError, render_text
from tunesmith.data.chat.tools import TOOL_FORMATS, parse_tool_calls, resolve_tool_format
from tunesmith.data.records import Conversation, Message, ToolCall
from tunesmith.errors import TemplateError

TOOLS = [
    {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}},
    {"name": "g", "parameters": {"properties": {"a": {"type": "integer"}}}},
]
CALL = {"type": "function", "function": {"name": "f", "arguments": {"a": "12"}}}
WIRE = {
    "default": 'Action: f\nAction Input: {"a": "12"}',
    "gemma4": '<|tool_call>call:f{a:<|"|>12<|"|>}<tool_call|>',
    "glm4": 'f\n{"a": "12"}',
    "glm4_moe": "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>12</arg_value>\n</tool_call>",
    "lfm2": '<|tool_call_start|>[f(a="12")]<|tool_call_end|>',
    "ling": '<tool_call>\n{"name": "f", "arguments": {"a": "12"}}\n</tool_call>',
    "llama3": '{"name": "f", "parameters": {"a": "12"}}',
    "minimax1": '<tool_calls>\n{"name": "f", "arguments": {"a": "12"}}\n</tool_calls>',
    "minimax2": (
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">12</parameter>\n</invoke>\n</minimax:tool_call>'
    ),
    "mistral": '[{"name": "f", "arguments": {"a": "12"}}]',
    "qwen": '<tool_call>\n{"name": "f", "arguments": {"a": "12"}}\n</tool_call>',
    "qwen3_5": "<tool_call>\n<function=f>\n<parameter=a>\n12\n</parameter>\n</function>\n</tool_call>",
    "seed_oss": "<seed:tool_call>\n<function=f>\n<parameter=a>12</parameter>\n</function>\n</seed:tool_call>",
}


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_a_call_has_its_wire_text(name):
    tool_format = TOOL_FORMATS[name]
    assert render_text(tool_format.macros + tool_format.calls_source, [], None, {"calls": [CALL]}) == WIRE[name]


@pytest.mark.parametrize("name", [name for name in TOOL_FORMATS if "JSON" not in name])
def test_every_tool_is_listed(name):
    tool_format = TOOL_FORMATS[name]
    schemas = [TOOLS[0], {"type": "function", "function": TOOLS[1]}]
    text = render_text(tool_format.macros + tool_format.tools_source, [], schemas, {})
    assert "f" in text
    assert "integer" in text


def test_schemas_tell_a_text_from_a_number():
    text = "<tool_call>\n<function={}>\n<parameter=a>\n12\n</parameter>\n</function>\n</tool_call>"
    for name, value in (("f", "12"), ("g", 12), ("unknown", 12)):
        (call,) = parse_tool_calls(text.format(name), "qwen3_5", json.dumps(TOOLS)).calls
        assert json.loads(call.arguments) == {"a": value}
    (call,) = parse_tool_calls(text.format("f").replace("12", '"12"'), "qwen3_5").calls
    assert json.loads(call.arguments) == {"a": '"12"'}
    (call,) = parse_tool_calls(text.format("f").replace("12", "{x"), "qwen3_5").calls
    assert json.loads(call.arguments) == {"a": "{x"}


def test_arguments_as_json_text_are_not_quoted_twice():
    call = {"name": "f", "arguments": '{"a": "12"}'}
    for name in ("qwen", "llama3", "mistral", "default", "glm4"):
        tool_format = TOOL_FORMATS[name]
        assert render_text(tool_format.calls_source, [], None, {"calls": [call]}) == WIRE[name]


def test_tags_cannot_hold_arguments_that_are_text():
    with pytest.raises(RenderingRefusedError, match="refuses the row"):
        render_text(TOOL_FORMATS["qwen3_5"].calls_source, [], None, {"calls": [{"name": "f", "arguments": "{}"}]})


def test_glm4_takes_one_call_at_a_time():
    template = template_of("glm4", tokenizer_of("metaspace"))
    twice = (ToolCall("f", "{}"), ToolCall("g", "{}"))
    with pytest.raises(RenderingRefusedError, match="takes one call at a time"):
        template.render_segments(Conversation((Message("user", "Q"), Message("assistant", "", twice))))


def test_mistral_is_read_with_and_without_its_token():
    for text in ('[TOOL_CALLS] [{"name": "f", "arguments": {}}]', '[{"name": "f", "arguments": {}}]'):
        assert parse_tool_calls(text, "mistral").calls == (ToolCall("f", "{}"),)


def test_constants_of_python_and_of_json_are_read():
    text = "<|tool_call_start|>[f(a=True, b=null, c=[false, {'x': None}])]<|tool_call_end|>"
    (call,) = parse_tool_calls(text, "lfm2").calls
    assert json.loads(call.arguments) == {"a": True, "b": None, "c": [False, {"x": None}]}
    (call,) = parse_tool_calls("<|tool_call>call:f{a:None,b:null,c:[true,1.5]}<tool_call|>", "gemma4").calls
    assert json.loads(call.arguments) == {"a": None, "b": None, "c": [True, 1.5]}


def test_an_unknown_format_is_refused_with_the_known_ones():
    with pytest.raises(TemplateError, match=r"tool format 'x' is not known; known: qwen, .*seed_oss"):
        resolve_tool_format("x")
    with pytest.raises(TemplateError, match="tool format 'x'"):
        resolve_template(settings("chatml", tool_format="x"), tokenizer_of("byte_level"))


def test_another_format_goes_into_a_template_of_ours():
    tokenizer = tokenizer_of("byte_level")
    template = template_of("chatml", tokenizer, tool_format="llama3")
    assert template.tool_format == "llama3"
    conversation = Conversation((Message("user", "Q"), Message("assistant", "", (ToolCall("f", "{}"),))))
    (row,) = template.render_segments(conversation)
    assert row[1].text == '{"name": "f", "parameters": {}}<|im_end|>'
    template.apply_to_tokenizer(tokenizer)
    again = resolve_template(settings("auto"), tokenizer)
    assert (again.name, again.tool_format, again.method) == ("chatml", "llama3", "marks")


def test_the_tokenizer_s_own_template_has_its_own_way():
    tokenizer = tokenizer_of("byte_level")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }}{% for c in m['tool_calls'] or [] %}<tool_call>\n"
        "{{ c['function'] | tojson }}\n</tool_call>{% endfor %}<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    with pytest.raises(TemplateError, match="prints tools its own way"):
        resolve_template(settings("auto", tool_format="qwen"), tokenizer)
    template = resolve_template(settings("auto"), tokenizer)
    assert template.tool_format == "qwen"
    parsed = template.parse_answer('Hm\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>')
    assert (parsed.content, parsed.calls) == ("Hm", (ToolCall("f", '{"a": 1}'),))


def test_an_answer_of_a_template_without_calls_is_words():
    tokenizer = tokenizer_of("byte_level")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }}<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    template = resolve_template(settings("auto"), tokenizer)
    assert template.tool_format is None
    assert template.parse_answer("Hi").content == "Hi"
