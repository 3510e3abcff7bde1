import pytest

from tests.unit.data.formats.specs import spec_of
from tunesmith.data.formats import build_format
from tunesmith.data.records import Dropped, Message, ToolCall
from tunesmith.data.sources.dataset_spec import Tags


def convert(*turns, columns=None, tags=None, **values):
    spec = spec_of("sharegpt", columns=columns, tags=tags)
    return build_format(spec, "sft")({"conversations": [{"from": who, "value": what} for who, what in turns], **values})


def test_turns_become_messages():
    record = convert(("system", "S"), ("human", "Q"), ("gpt", "A"))
    assert record.messages == (Message("system", "S"), Message("user", "Q"), Message("assistant", "A"))


def test_tool_turns_become_calls_and_results():
    call = '{"name": "find", "arguments": {"what": ["a", "ü"]}}'
    record = convert(
        ("human", "Q"),
        ("function_call", call),
        ("observation", "{}"),
        ("gpt", "A"),
        columns={"messages": "conversations", "tools": "tools"},
        tools='[{"name": "find"}]',
    )
    assert record.messages[1] == Message("assistant", "", (ToolCall("find", '{"what": ["a", "ü"]}'),))
    assert record.messages[2] == Message("tool", "{}")
    assert record.tools == '[{"name": "find"}]'


def test_system_turn_wins_over_the_system_column():
    columns = {"messages": "conversations", "system": "system"}
    turns = (("human", "Q"), ("gpt", "A"))
    assert convert(*turns, columns=columns, system="column").messages[0] == Message("system", "column")
    assert convert(("system", "turn"), *turns, columns=columns, system="column").messages[0] == Message(
        "system", "turn"
    )
    assert convert(*turns, columns=columns, system=None).messages[0].role == "user"


def test_other_names_for_roles_and_contents():
    tags = Tags(
        role_tag="who",
        content_tag="what",
        user_tag="u",
        assistant_tag="a",
        observation_tag="o",
        function_tag="f",
        system_tag="s",
    )
    row = {"conversations": [{"who": "u", "what": "Q"}, {"who": "a", "what": "A"}]}
    record = build_format(spec_of("sharegpt", tags=tags), "sft")(row)
    assert record.messages == (Message("user", "Q"), Message("assistant", "A"))


@pytest.mark.parametrize(
    ("turns", "reason", "detail"),
    [
        (
            [("human", "Q"), ("bot", "A")],
            "unknown role",
            "conversations[1].from is 'bot'; known are 'human', 'gpt', 'system'",
        ),
        ([("human", "Q"), ("gpt", None)], "wrong type", "conversations[1].value: expected text, found nothing (None)"),
        (
            [("human", "Q"), ("function_call", "{")],
            "tool text is not JSON",
            "conversations[1]: Expecting property name",
        ),
    ],
)
def test_unusable_turns_are_named_with_their_place(turns, reason, detail):
    dropped = convert(*turns)
    assert dropped == Dropped(reason)
    assert dropped.detail.startswith(detail)


def test_a_turn_without_what_every_turn_has_says_what_it_has():
    convert_row = build_format(spec_of("sharegpt"), "sft")
    assert convert_row({"conversations": [{"from": "human", "text": "Q"}]}).detail == (
        "conversations[0].value is missing; there are 'from', 'text'"
    )
    assert convert_row({"conversations": [{"value": "Q"}]}).detail == (
        "conversations[0].from is missing; there are 'value'"
    )


def test_rows_without_turns_or_with_other_things_are_dropped():
    turn_less = build_format(spec_of("sharegpt"), "sft")
    assert turn_less({}) == Dropped("column is missing")
    assert turn_less({"conversations": []}) == Dropped("no turns")
    assert turn_less({"conversations": "text"}).detail.startswith("conversations: expected a list, found text")
    assert turn_less({"conversations": ["text"]}).detail.startswith("conversations[0]: expected an object, found text")


def test_marks_on_answers_and_calls_say_whether_they_are_learnt():
    marked = [
        {"from": "human", "value": "Q", "weight": 0},
        {"from": "gpt", "value": "A", "loss_mask": 0},
        {"from": "human", "value": "Q"},
        {"from": "function_call", "value": '{"name": "f", "arguments": {}}', "train": True},
        {"from": "observation", "value": "R", "train": False},
        {"from": "gpt", "value": "A"},
    ]
    record = build_format(spec_of("sharegpt"), "sft")({"conversations": marked})
    assert [message.trained for message in record.messages] == [None, False, None, True, None, None]


def test_the_order_of_turns_is_handled_as_the_data_set_says():
    turns = [{"from": "human", "value": text} for text in "ab"] + [{"from": "gpt", "value": "c"}]
    merged = build_format(spec_of("sharegpt"), "sft")({"conversations": turns})
    assert ([message.content for message in merged.messages], len(merged.repairs)) == (["a\nb", "c"], 1)
    strict = build_format(spec_of("sharegpt", turn_order_policy="skip"), "sft")
    assert strict({"conversations": turns}) == Dropped("two questions in a row")


def test_values_become_text_only_where_the_run_asks_for_it():
    turns = [{"from": "human", "value": 7}, {"from": "gpt", "value": {"a": 1}}]
    plain = build_format(spec_of("sharegpt"), "sft")({"conversations": turns})
    assert plain == Dropped("wrong type")
    text = build_format(spec_of("sharegpt", stringify_values=True), "sft")({"conversations": turns})
    assert [message.content for message in text.messages] == ["7", '{"a": 1}']
