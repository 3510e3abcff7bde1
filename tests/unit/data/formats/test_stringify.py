from datetime import date

from tests.unit.data.formats.specs import spec_of
from tunesmith.data.formats.stringify import stringify_row
from tunesmith.data.sources.problems import UnreadableValue


def test_values_become_their_json_text_and_nothing_stays_nothing():
    row = {
        "instruction": 7,
        "input": None,
        "output": {"é": [1, True]},
        "system": 2.5,
        "history": [["Q", 1], "x"],
    }
    spec = spec_of("alpaca", columns={"prompt": "instruction", "query": "input", "response": "output",
                                      "system": "system", "history": "history"})  # fmt: skip
    assert stringify_row(row, spec) == {
        "instruction": "7",
        "input": None,
        "output": '{"é": [1, true]}',
        "system": "2.5",
        "history": [["Q", "1"], "x"],
    }
    assert stringify_row({"output": date(2020, 1, 2)}, spec) == {"output": '"2020-01-02"'}


def test_contents_of_turns_become_text_but_not_lists_of_typed_parts():
    parts = [{"type": "text", "text": "a"}]
    row = {"messages": [{"role": "user", "content": 7}, {"role": "user", "content": parts}, {"role": "x"}, 3]}
    assert stringify_row(row, spec_of("openai"))["messages"] == [
        {"role": "user", "content": "7"},
        {"role": "user", "content": parts},
        {"role": "x"},
        3,
    ]
    assert stringify_row({"conversations": "text"}, spec_of("sharegpt")) == {"conversations": "text"}


def test_the_sides_of_a_pair_become_text_as_turns_where_they_are_some():
    texts = {"chosen": 7, "rejected": ["a"]}
    assert stringify_row(texts, spec_of("alpaca")) == {"chosen": "7", "rejected": '["a"]'}
    turns = {"chosen": {"from": "gpt", "value": 7}, "rejected": [{"from": "gpt", "value": True}, "x"]}
    assert stringify_row(turns, spec_of("sharegpt")) == {
        "chosen": {"from": "gpt", "value": "7"},
        "rejected": [{"from": "gpt", "value": "true"}, "x"],
    }
    assert stringify_row({"chosen": 7, "rejected": None}, spec_of("sharegpt")) == {"chosen": "7", "rejected": None}


def test_what_cannot_be_read_does_not_become_text():
    twice = UnreadableValue("two values under 'x'")
    row = {"instruction": twice, "output": {"x": twice}}
    assert stringify_row(row, spec_of("alpaca")) == row
