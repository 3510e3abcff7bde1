import pytest

from tests.unit.data.formats.specs import spec_of
from tunesmith.data.formats import build_format
from tunesmith.data.records import Conversation, Document, Dropped

HALF = "\ud83d"


@pytest.mark.parametrize("text", ["plain", "é🙂", "你好", "\x00"])
def test_whole_characters_are_left_alone(text):
    assert isinstance(build_format(spec_of("alpaca"), "sft")({"instruction": text, "output": text}), Conversation)
    assert build_format(spec_of("text"), "pt")({"text": text}) == Document(text)


@pytest.mark.parametrize(
    ("formatting", "stage", "values", "detail"),
    [
        ("text", "pt", {"text": f"ab {HALF}"}, "text: '\\ud83d' at character 4"),
        ("alpaca", "sft", {"instruction": "a", "output": f"é{HALF}b"}, "turn 2: '\\ud83d' at character 2"),
        (
            "openai",
            "sft",
            {
                "messages": [
                    {"role": "user", "content": "a"},
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [{"name": "f", "arguments": '{"x": "\\ud83d"}'}],
                    },
                ]
            },
            "turn 2, arguments of a tool call: '\\ud83d' at character 8",
        ),
        (
            "openai",
            "sft",
            {
                "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
                "tools": [{"name": f"f{HALF}"}],
            },
            "tools: '\\ud83d' at character 13",
        ),
    ],
)
def test_half_of_a_character_drops_the_row_and_is_named_with_its_place(formatting, stage, values, detail):
    dropped = build_format(spec_of(formatting), stage)(values)
    assert dropped == Dropped("half of a character")
    assert dropped.detail == detail


def test_the_noncharacter_that_marks_text_drops_the_row_and_does_not_vanish():
    dropped = build_format(spec_of("text"), "pt")({"text": "ab\ufdd0c"})
    assert dropped == Dropped("a noncharacter")
    assert dropped.detail == "text: '\\ufdd0' at character 3"
    assert build_format(spec_of("text"), "pt")({"text": "ab\ufdd1c"}) == Document("ab\ufdd1c")
