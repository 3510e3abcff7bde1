import pytest

from tunesmith.data.formats.fields import UnusableRowError
from tunesmith.data.formats.marks import MARKS, read_mark


@pytest.mark.parametrize("name", MARKS)
@pytest.mark.parametrize(("value", "expected"), [(1, True), (0, False), (True, True), ("false", False), (None, None)])
def test_each_mark_says_whether_an_answer_is_learnt(name, value, expected):
    assert read_mark({name: value}, "turns[3]", "assistant") is expected


def test_marks_that_agree_are_one():
    assert read_mark({"train": True, "weight": 1}, "turns[3]", "assistant") is True
    assert read_mark({}, "turns[3]", "assistant") is None


@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_prompts_may_be_marked_as_not_learnt(role):
    assert read_mark({"weight": 0, "train": False}, "turns[3]", role) is None


@pytest.mark.parametrize(
    ("turn", "role", "reason", "detail"),
    [
        ({"weight": 0.5}, "assistant", "wrong type", r"turns[3].weight: expected 0 or 1 (shares of a weight are not"),
        ({"loss_mask": "some"}, "assistant", "wrong type", "turns[3].loss_mask: expected 0 or 1"),
        (
            {"train": True, "weight": 0},
            "assistant",
            "marks of a turn contradict each other",
            "turns[3]: train is true, weight is false",
        ),
        (
            {"weight": 1},
            "user",
            "mark on a turn that is not an answer",
            "turns[3] is of role user: expected no mark or 0, found weight; only answers are learnt",
        ),
    ],
)
def test_marks_that_cannot_be_kept_are_refused(turn, role, reason, detail):
    with pytest.raises(UnusableRowError) as caught:
        read_mark(turn, "turns[3]", role)
    assert caught.value.dropped.reason == reason
    assert caught.value.dropped.detail.startswith(detail)
