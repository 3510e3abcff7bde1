import pytest

from tunesmith.data.formats.fields import UnusableRowError
from tunesmith.data.formats.turns import build_conversation
from tunesmith.data.records import Message

ROLES = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}


def turns(letters):
    return [Message(ROLES[letter], f"{letter}{place}") for place, letter in enumerate(letters)]


def contents(letters):
    return [message.content for message in build_conversation(turns(letters)).messages]


def test_questions_in_a_row_are_joined():
    assert contents("uua") == ["u0\nu1", "a2"]
    assert contents("suuaua") == ["s0", "u1\nu2", "a3", "u4", "a5"]


def test_calls_and_results_may_follow_each_other():
    assert contents("uattata") == ["u0", "a1", "t2", "t3", "a4", "t5", "a6"]


def test_an_empty_system_turn_is_none():
    messages = [Message("system", ""), Message("user", "Q"), Message("assistant", "A")]
    assert [m.role for m in build_conversation(messages).messages] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("letters", "reason", "detail"),
    [
        ("uau", "last turn is not an answer", "it is of role user"),
        ("uat", "last turn is not an answer", "it is of role tool"),
        ("uaa", "two answers in a row", "turn 3"),
        ("aua", "answer before a question", "turn 1"),
        ("sa", "answer before a question", "turn 2"),
        ("usa", "system turn after the start", "turn 2"),
        ("uta", "tool result without a call", "turn 2"),
        ("", "no turns", ""),
    ],
)
def test_other_orders_drop_the_row(letters, reason, detail):
    with pytest.raises(UnusableRowError) as caught:
        build_conversation(turns(letters))
    assert (caught.value.dropped.reason, caught.value.dropped.detail) == (reason, detail)
