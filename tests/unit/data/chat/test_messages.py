import pytest

from tunesmith.data.chat.messages import template_messages, template_tools
from tunesmith.data.chat.render import RenderingRefusedError
from tunesmith.data.records import Message, ToolCall


def test_arguments_become_objects():
    (message,) = template_messages([Message("assistant", "", (ToolCall("f", '{"a": [1]}'),))])
    assert message == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": [1]}}}],
    }


def test_nulls_are_left_out_of_dicts():
    assert template_messages([{"role": "user", "content": "x", "tool_calls": None}]) == [
        {"role": "user", "content": "x"}
    ]


def test_bare_tools_are_wrapped_and_wrapped_ones_kept():
    wrapped = {"type": "function", "function": {"name": "g"}}
    assert template_tools('[{"name": "f"}]') == [{"type": "function", "function": {"name": "f"}}]
    assert template_tools([wrapped]) == [wrapped]
    assert template_tools(None) is None
    assert template_tools("[]") is None


@pytest.mark.parametrize("text", ["{", "3", '"abc"', "[1]"])
def test_tools_that_are_not_a_list_of_objects_are_refused(text):
    with pytest.raises(RenderingRefusedError, match="tools are not JSON"):
        template_tools(text)


@pytest.mark.parametrize("arguments", ["{", "3"])
def test_arguments_that_are_not_an_object_are_refused(arguments):
    with pytest.raises(RenderingRefusedError, match="tool call arguments are not JSON: f"):
        template_messages([Message("assistant", "", (ToolCall("f", arguments),))])


def test_calls_of_clients_get_objects_for_their_json_text():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    bare = {"name": "g", "arguments": ""}
    ready = {"name": "h", "arguments": {"b": 2}}
    (message,) = template_messages([{"role": "assistant", "content": None, "tool_calls": [call, bare, ready]}])
    assert "content" not in message
    first, second, third = message["tool_calls"]
    assert third == {"name": "h", "arguments": {"b": 2}, "type": "function", "function": ready}
    assert (first["id"], first["function"]) == ("1", {"name": "f", "arguments": {"a": 1}})
    assert second["function"] == {"name": "g", "arguments": {}}
    with pytest.raises(RenderingRefusedError, match="tool call arguments are not JSON: f"):
        template_messages([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "["}}]}])
