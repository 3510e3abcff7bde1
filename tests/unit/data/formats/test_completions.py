import math

import pytest

from tests.unit.data.formats.specs import spec_of
from tunesmith.data.formats import build_format
from tunesmith.data.records import Dropped, Feedback, Message, Preference, ToolCall


def convert(formatting, row, stage="dpo", columns=None):
    return build_format(spec_of(formatting, ranking=stage != "kto", columns=columns), stage)(row)


def user(text):
    return {"role": "user", "content": text}


def answer(text):
    return {"role": "assistant", "content": text}


def shown(record):
    """Roles and texts of prompt, chosen and rejected."""
    parts = (record.prompt, record.chosen, record.rejected)
    return [[f"{message.role[0]}:{message.content}" for message in part] for part in parts]


def test_alpaca_pairs_have_an_answer_in_each_of_two_columns():
    columns = {"prompt": "instruction", "query": "input", "chosen": "good", "rejected": "bad", "history": "history"}
    row = {"instruction": "Q", "input": "more", "history": [["q", "a"]], "good": "A", "bad": ""}
    assert shown(convert("alpaca", row, columns=columns)) == [["u:q", "a:a", "u:Q\nmore"], ["a:A"], ["a:"]]


def test_sharegpt_pairs_have_turns_for_prompt_and_completions():
    row = {
        "conversations": [{"from": "system", "value": "S"}, {"from": "human", "value": "Q"}],
        "chosen": {"from": "gpt", "value": "A"},
        "rejected": {"from": "gpt", "value": "B"},
        "tools": "[{}]",
    }
    columns = {"messages": "conversations", "chosen": "chosen", "rejected": "rejected", "tools": "tools"}
    record = convert("sharegpt", row, columns=columns)
    assert shown(record) == [["s:S", "u:Q"], ["a:A"], ["a:B"]]
    assert record.tools == "[{}]"


@pytest.mark.parametrize(
    "wrap", [lambda text: text, answer, lambda text: [answer(text)]], ids=["text", "turn", "turns"]
)
def test_a_completion_is_a_text_a_turn_or_several(wrap):
    record = convert("openai", {"messages": [user("Q")], "chosen": wrap("A"), "rejected": wrap("B")})
    assert shown(record) == [["u:Q"], ["a:A"], ["a:B"]]


def test_a_prompt_of_several_turns_is_kept_whole():
    messages = [user("Q1"), answer("A1"), user("Q2"), user("Q3")]
    record = convert("openai", {"messages": messages, "chosen": "A", "rejected": "B"})
    assert shown(record) == [["u:Q1", "a:A1", "u:Q2\nQ3"], ["a:A"], ["a:B"]]


def test_a_completion_may_call_a_tool_and_go_on_after_its_result():
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    chosen = [call, {"role": "tool", "content": "7"}, answer("It is 7.")]
    record = convert("openai", {"messages": [user("Q")], "chosen": chosen, "rejected": "B"})
    assert record.chosen == (
        Message("assistant", "", (ToolCall("f", "{}"),)),
        Message("tool", "7"),
        Message("assistant", "It is 7."),
    )


WHOLE = ([user("Q1"), answer("A1"), user("Q2"), answer("good")], [user("Q1"), answer("A1"), user("Q2"), answer("bad")])


@pytest.mark.parametrize("messages", [None, [user("Q1")], WHOLE[0]], ids=["none", "part", "all of the chosen one"])
def test_conversations_of_which_each_ends_differently_have_what_they_share_as_prompt(messages):
    record = convert("openai", {"messages": messages, "chosen": WHOLE[0], "rejected": WHOLE[1]})
    assert shown(record) == [["u:Q1", "a:A1", "u:Q2"], ["a:good"], ["a:bad"]]


def test_a_system_column_stands_before_a_shared_prompt():
    columns = {"system": "system", "chosen": "chosen", "rejected": "rejected"}
    row = {"system": "S", "chosen": WHOLE[0], "rejected": WHOLE[1]}
    assert shown(convert("openai", row, columns=columns))[0] == ["s:S", "u:Q1", "a:A1", "u:Q2"]


def test_the_shared_prompt_ends_before_the_last_answer_even_where_both_are_the_same():
    record = convert("openai", {"chosen": WHOLE[0], "rejected": WHOLE[0]})
    assert shown(record) == [["u:Q1", "a:A1", "u:Q2"], ["a:good"], ["a:good"]]


def test_the_shared_prompt_ends_before_an_answer_that_only_one_of_them_goes_on_from():
    rejected = [user("Q1"), answer("A1"), user("other"), answer("bad")]
    record = convert("openai", {"chosen": WHOLE[0], "rejected": rejected})
    assert shown(record) == [["u:Q1"], ["a:A1", "u:Q2", "a:good"], ["a:A1", "u:other", "a:bad"]]


NO_SHARED_PROMPT = "chosen and rejected have no prompt in common"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": [user("Q")], "chosen": "A"}, "no completion"),
        ({"messages": [user("Q")], "chosen": [], "rejected": "B"}, "no completion"),
        ({"chosen": [user("Q"), answer("A")], "rejected": [user("P"), answer("B")]}, NO_SHARED_PROMPT),
        ({"messages": [user("Q")], "chosen": user("A"), "rejected": "B"}, NO_SHARED_PROMPT),
        ({"messages": [], "chosen": "A", "rejected": "B"}, "answer before a question"),
        ({"messages": [user("Q"), answer("A")], "chosen": "A", "rejected": "B"}, "two answers in a row"),
        ({"messages": [user("Q")], "chosen": 3, "rejected": "B"}, "wrong type"),
        ({"messages": [user("Q")], "chosen": "A", "rejected": "B", "margin": "much"}, "wrong type"),
        ({"messages": [user("Q")], "chosen": "A", "rejected": "B", "margin": True}, "wrong type"),
        ({"messages": [user("Q")], "chosen": "A", "rejected": "B", "margin": math.nan}, "wrong type"),
        ({"messages": [user("Q")], "chosen": "A", "rejected": "B", "margin": -math.inf}, "wrong type"),
        ({"messages": [user("Q")], "chosen": "A", "rejected": "B", "margin": 10**400}, "wrong type"),
        ({"messages": [user("Q")], "chosen": "A", "rejected": "\ud83d"}, "half of a character"),
    ],
)
def test_rows_that_are_no_pair_are_dropped_with_a_reason(row, reason):
    record = convert("openai", row)
    assert isinstance(record, Dropped)
    assert record.reason == reason


def test_margins_are_read_where_there_are_some():
    row = {"messages": [user("Q")], "chosen": "A", "rejected": "B"}
    assert convert("openai", row).margin == 0.0
    assert convert("openai", {**row, "margin": 2}).margin == 2.0


@pytest.mark.parametrize(("label", "expected"), [(True, True), (False, False), (1, True), (0, False), (1.0, True)])
def test_rated_rows_have_a_verdict(label, expected):
    record = convert("openai", {"messages": [user("Q"), answer("A")], "label": label}, stage="kto")
    assert record == Feedback((Message("user", "Q"),), (Message("assistant", "A"),), expected)


def test_an_empty_answer_keeps_its_verdict():
    record = convert("alpaca", {"instruction": "Q", "output": "", "label": True}, stage="kto")
    assert (record.completion[0].content, record.is_desirable) == ("", True)


@pytest.mark.parametrize(
    ("label", "reason"), [(None, "no verdict"), ("maybe", "wrong type"), (2, "wrong type"), ([], "wrong type")]
)
def test_rows_without_a_usable_verdict_are_dropped(label, reason):
    assert convert("openai", {"messages": [user("Q"), answer("A")], "label": label}, stage="kto").reason == reason
    assert convert("openai", {"messages": [], "label": True}, stage="kto").reason == "no turns"


def test_half_characters_are_found_in_rated_rows():
    row = {"messages": [user("Q"), answer("\ud83d")], "label": True}
    assert convert("openai", row, stage="kto").reason == "half of a character"


def test_pairs_are_pairs_in_both_stages():
    row = {"messages": [user("Q")], "chosen": "A", "rejected": "B"}
    assert (
        convert("openai", row, stage="rm")
        == convert("openai", row)
        == Preference((Message("user", "Q"),), (Message("assistant", "A"),), (Message("assistant", "B"),))
    )
