"""Every tool format: what is printed is read back as it was, from the format alone and out of whole answers."""

import json

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tests.unit.data.chat.conversations import DISTINCT_NAMES, shared_tokenizer, template_of
from tunesmith.data.chat.render import render_text
from tunesmith.data.chat.tools import TOOL_FORMATS, parse_tool_calls
from tunesmith.data.records import Conversation, Message, ToolCall

PARTS = ["Paris", " ", "\n", '"', "'", "\\", "12", "true", "null", "你好", "🙂", "{", "}", "[", ",", ":", "(", "=", "é"]
texts = st.lists(st.sampled_from(PARTS), max_size=5).map("".join)
keys = st.sampled_from(["place", "days", "is_warm", "城市"])
scalars = texts | st.integers(-(10**9), 10**9) | st.booleans() | st.none() | st.floats(-1e6, 1e6, allow_nan=False)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))
arguments = st.dictionaries(keys, values, max_size=3)
names = st.sampled_from(["find_weather", "get-time", "f", "查询"])
calls = st.lists(st.tuples(names, arguments), min_size=1, max_size=3)

PYTHON_NAMES = {"lfm2"}
"""Formats that write names as Python does."""

KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def schemas_of(wanted):
    """Tools whose arguments are of the types that the calls have."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": "",
                "parameters": {
                    "type": "object",
                    "properties": {
                        key: {"type": KINDS.get(type(value), "null")} for key, value in given_arguments.items()
                    },
                },
            },
        }
        for name, given_arguments in wanted
    ]


def render_calls(tool_format, wanted):
    listed = [{"type": "function", "function": {"name": name, "arguments": given}} for name, given in wanted]
    return render_text(tool_format.macros + tool_format.calls_source, [], None, {"calls": listed})


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_calls_are_read_back_as_they_were(name):
    tool_format = TOOL_FORMATS[name]

    @limits(max_examples=25, deadline=None)
    @given(calls, st.sampled_from(["", "I will look.", "Two\nlines"]))
    def holds(wanted, words):
        wanted = list({called: (called, given_arguments) for called, given_arguments in wanted}.values())
        if name in PYTHON_NAMES:
            wanted = [(called.replace("-", "_"), given_arguments) for called, given_arguments in wanted]
        if name == "glm4":
            wanted = wanted[:1]
        text = (words + "\n" if words else "") + render_calls(tool_format, wanted)
        parsed = parse_tool_calls(text, name, schemas_of(wanted))
        assert [(call.name, json.loads(call.arguments)) for call in parsed.calls] == wanted
        assert parsed.content == words

    holds()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Just words.",
        "<tool_call>",
        "<tool_call>\n{broken\n</tool_call>",
        '<tool_call>\n{"name": 3, "arguments": {}}\n</tool_call>',
        "Action: f\nAction Input: {oops",
        "Action: f\nAction Input: [1]",
        "f\n{broken",
        "[TOOL_CALLS] {broken",
        '[TOOL_CALLS] {"name": "f"}',
        '{"name": "f"}',
        "<tool_calls>\nx\n</tool_calls>",
        "<minimax:tool_call>\n<invoke>\n</minimax:tool_call>",
        "<|tool_call_start|>[f(]<|tool_call_end|>",
        "<|tool_call_start|>[f(1)]<|tool_call_end|>",
        "<|tool_call_start|>[f(a=g)]<|tool_call_end|>",
        "<|tool_call_start|>3<|tool_call_end|>",
        "<|tool_call_start|>[f(a={1})]<|tool_call_end|>",
        "<|tool_call_start|>[f(a={[1]})]<|tool_call_end|>",
        "<|tool_call>call:f{a:" + "[" * 3000,
        "Action: f\nAction Input: " + "[" * 3000,
        '<tool_call>\n{"name": "f", "arguments": {"a": ' + "[" * 3000 + "\n</tool_call>",
        '{"name": "f", "parameters": {"a": ' + "9" * 5000 + "}}",
        'f\n{"a": ' + "9" * 5000 + "}",
        "<|tool_call>call:f{a",
        '<|tool_call>call:f{a:<|"|>x',
        "<|tool_call>call:f{a:1}",
        "<|tool_call>call:f{a:x}<tool_call|>",
        "<|tool_call>call:f",
        "<seed:tool_call>\n<function=f>",
    ],
)
def test_text_without_a_well_formed_call_is_words(text):
    for name in TOOL_FORMATS:
        parsed = parse_tool_calls(text, name)
        assert (parsed.content, parsed.calls) == (text, ()), name


@pytest.mark.parametrize("name", DISTINCT_NAMES)
def test_an_answer_of_a_template_of_ours_is_read_back(name):
    template = template_of(name, shared_tokenizer("byte_level"))
    call = ToolCall("find_weather", '{"place": "Köln", "days": 2}')
    for given_arguments in ('{"place": "Köln", "days": 2}', '{"days": 2, "place": "Köln"}'):
        conversation = Conversation(
            (Message("user", "Rain?"), Message("assistant", "I look.", (ToolCall("find_weather", given_arguments),)))
        )
        row = template.render_segments(conversation)[-1]
        answer = "".join(segment.text for segment in row if segment.trained).removesuffix(template.ending.marker)
        parsed = template.parse_answer(answer)
        assert [(found.name, json.loads(found.arguments)) for found in parsed.calls] == [
            (call.name, json.loads(call.arguments))
        ]
        assert (parsed.content.strip(), parsed.reasoning) == ("I look.", "")
