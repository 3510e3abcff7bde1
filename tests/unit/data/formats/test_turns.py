import re

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tunesmith.data.formats.fields import UnusableRowError
from tunesmith.data.formats.turns import (
    DISORDER,
    END_LEFT_OUT,
    QUESTIONS_JOINED,
    SYSTEM_TURNS_JOINED,
    build_conversation,
)
from tunesmith.data.records import Message

ROLES = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}


def turns(letters):
    return [Message(ROLES[letter], f"{letter}{place}") for place, letter in enumerate(letters)]


def built(letters, policy="merge"):
    conversation = build_conversation(turns(letters), policy=policy)
    return [message.content for message in conversation.messages], conversation.repairs


def test_questions_and_system_turns_in_a_row_are_joined_and_told():
    assert built("uua") == (["u0\nu1", "a2"], (QUESTIONS_JOINED,))
    assert built("suuuauua") == (["s0", "u1\nu2\nu3", "a4", "u5\nu6", "a7"], (QUESTIONS_JOINED,))
    assert built("ssua") == (["s0\ns1", "u2", "a3"], (SYSTEM_TURNS_JOINED,))


@pytest.mark.parametrize("letters", ["uau", "uat", "uatu", "uauu"])
def test_what_follows_the_last_answer_is_left_out_and_told(letters):
    contents, repairs = built(letters)
    assert contents == ["u0", "a1"]
    assert END_LEFT_OUT in repairs


@pytest.mark.parametrize("policy", ["merge", "skip", "error"])
def test_an_order_that_templates_print_is_left_alone(policy):
    assert built("uattata", policy) == (["u0", "a1", "t2", "t3", "a4", "t5", "a6"], ())


@pytest.mark.parametrize("policy", ["skip", "error"])
@pytest.mark.parametrize(
    ("letters", "reason"),
    [
        ("uua", "two questions in a row"),
        ("ssua", "two system turns in a row"),
        ("uau", "last turn is not an answer"),
        ("uat", "last turn is not an answer"),
    ],
)
def test_nothing_is_repaired_unless_the_policy_says_so(policy, letters, reason):
    with pytest.raises(UnusableRowError) as caught:
        built(letters, policy)
    assert caught.value.dropped.reason == reason
    assert reason in DISORDER


def test_an_empty_system_turn_is_none():
    messages = [Message("system", ""), Message("user", "Q"), Message("assistant", "A")]
    assert [m.role for m in build_conversation(messages).messages] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("letters", "reason", "detail"),
    [
        ("u", "last turn is not an answer", "it is of role user"),
        ("su", "last turn is not an answer", "it is of role user"),
        ("uaa", "two answers in a row", "turn 3"),
        ("aua", "answer before a question", "turn 1"),
        ("sa", "answer before a question", "turn 2"),
        ("usa", "system turn after the start", "turn 2"),
        ("uta", "tool result without a call", "turn 2"),
        ("", "no turns", ""),
    ],
)
def test_other_orders_make_the_row_unusable(letters, reason, detail):
    with pytest.raises(UnusableRowError) as caught:
        built(letters)
    assert (caught.value.dropped.reason, caught.value.dropped.detail) == (reason, detail)


@limits(max_examples=200, deadline=None)
@given(st.text("suat", max_size=8), st.sampled_from(["merge", "skip", "error"]))
def test_every_order_gives_turns_that_templates_print_or_a_reason(letters, policy):
    try:
        contents, repairs = built(letters, policy)
    except UnusableRowError as unusable:
        if unusable.dropped.reason not in DISORDER | {"no turns"}:
            raise
        return
    assert re.fullmatch("s?(u(a(ta|t)*)?)*", "".join(text[0] for text in contents).replace("tt", "t")) is not None
    assert contents[-1][0] == "a"
    assert policy == "merge" or not repairs
