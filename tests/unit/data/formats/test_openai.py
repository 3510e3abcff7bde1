import pytest

from tests.unit.data.formats.specs import spec_of
from tunesmith.data.formats import build_format
from tunesmith.data.records import Dropped, Message, ToolCall

convert = build_format(spec_of("openai"), "sft")
ASK = {"role": "user", "content": "Q"}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def test_contents_are_taken_over_to_the_letter():
    system = {"role": "system", "content": "detailed  thinking\n"}
    record = convert({"messages": [system, ASK, {"role": "assistant", "content": " A\n"}]})
    assert [m.content for m in record.messages] == ["detailed  thinking\n", "Q", " A\n"]
    assert convert({"messages": [ASK, {"role": "assistant", "content": "A"}]}).messages[0] == Message("user", "Q")


def test_tool_calls_keep_their_arguments_as_they_are():
    rows = [ASK, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "content": "r"}]
    record = convert({"messages": [*rows, {"role": "assistant", "content": "A"}], "tools": [{"type": "function"}]})
    assert record.messages[1] == Message("assistant", "", (ToolCall("f", '{"a": 1}'),))
    assert record.messages[2] == Message("tool", "r")
    assert record.tools == '[{"type": "function"}]'


def test_text_parts_are_joined_and_media_is_refused():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    record = convert({"messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": "A"}]})
    assert record.messages[0].content == "ab"
    image = {"messages": [{"role": "user", "content": [{"type": "image_url"}]}, {"role": "assistant", "content": "A"}]}
    assert convert(image) == Dropped("media is not supported yet")


@pytest.mark.parametrize(("weight", "trained"), [(None, None), (0, False), (1, True)])
def test_weights_say_which_answers_are_learnt(weight, trained):
    record = convert({"messages": [ASK, {"role": "assistant", "content": "A", "weight": weight}]})
    assert record.messages[1].trained is trained


@pytest.mark.parametrize(
    ("answer", "reason", "detail"),
    [
        ({"role": "assistant", "content": None}, "wrong type", "messages[1].content: expected text, found nothing"),
        ({"role": "assistant", "content": "A", "weight": 0.5}, "wrong type", "messages[1].weight: expected 0 or 1"),
        (
            {"role": "robot", "content": "A"},
            "unknown role",
            "messages[1].role is 'robot'; known are 'user', 'assistant', 'system', 'tool', 'function'",
        ),
        ({"from": "gpt", "value": "A"}, "wrong type", "messages[1].content is missing; there are 'from', 'value'"),
        ({"content": "A"}, "wrong type", "messages[1].role is missing; there are 'content'"),
        (
            {"role": "assistant", "tool_calls": {}},
            "wrong type",
            "messages[1].tool_calls: expected a list, found",
        ),
        (
            {"role": "assistant", "tool_calls": [{}]},
            "tool call is malformed",
            "messages[1].tool_calls[0]: expected an object",
        ),
        (
            {"role": "assistant", "content": [{"type": "text"}]},
            "wrong type",
            "messages[1].content[0].text: expected text",
        ),
        (
            {"role": "assistant", "content": ["x"]},
            "wrong type",
            "messages[1].content[0]: expected an object with a type",
        ),
    ],
)
def test_unusable_messages_are_named_with_their_place(answer, reason, detail):
    dropped = convert({"messages": [ASK, answer]})
    assert dropped == Dropped(reason)
    assert dropped.detail.startswith(detail)


def test_developer_is_system_and_function_is_a_call():
    rows = [{"role": "developer", "content": "S"}, ASK, {"role": "function", "content": '{"name": "f"}'}]
    record = convert({"messages": rows})
    assert record.messages[0].role == "system"
    assert record.messages[2] == Message("assistant", "", (ToolCall("f", "{}"),))
