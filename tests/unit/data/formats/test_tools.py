from datetime import date

import pytest

from tunesmith.data.formats.fields import UnusableRowError
from tunesmith.data.formats.tools import convert_tool_call, parse_tool_calls, read_tools
from tunesmith.data.records import ToolCall


def test_tools_may_be_text_or_a_list():
    assert read_tools({"t": '[{"name": "f"}]'}, "t") == read_tools({"t": [{"name": "f"}]}, "t") == '[{"name": "f"}]'
    assert read_tools({"t": ""}, "t") is read_tools({"t": "[]"}, "t") is read_tools({}, None) is None


def test_one_call_or_several():
    assert parse_tool_calls('{"name": "f", "arguments": {}}', "x") == (ToolCall("f", "{}"),)
    assert parse_tool_calls('[{"name": "f"}, {"name": "g"}]', "x") == (ToolCall("f", "{}"), ToolCall("g", "{}"))


@pytest.mark.parametrize("arguments", ['{"a": 1}', {"a": 1}])
def test_arguments_are_not_quoted_twice(arguments):
    assert convert_tool_call({"name": "f", "arguments": arguments}, "x") == ToolCall("f", '{"a": 1}')


@pytest.mark.parametrize(
    "call", [{}, 3, {"name": 4}, {"name": "f", "arguments": [1]}, {"name": "f", "arguments": "[1]"}]
)
def test_malformed_calls_are_named(call):
    with pytest.raises(UnusableRowError) as caught:
        convert_tool_call(call, "turns[2]")
    assert caught.value.dropped.reason == "tool call is malformed"
    assert caught.value.dropped.detail.startswith("turns[2]")


def test_an_empty_list_of_calls_is_malformed():
    with pytest.raises(UnusableRowError, match="tool call is malformed"):
        parse_tool_calls("[]", "x")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "tool text is not JSON"),
        ("9" * 5000, "tool text is not JSON"),
        ("3", "wrong type"),
        ("[3]", "wrong type"),
        ([{"name": "f", "since": date(2024, 1, 1)}], "wrong type"),
    ],
)
def test_tools_of_another_shape_are_refused(text, reason):
    with pytest.raises(UnusableRowError, match=reason):
        read_tools({"t": text}, "t")
