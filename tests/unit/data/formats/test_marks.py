import pytest

from tests.unit.data.formats.specs import spec_of
from tunesmith.data.formats.fields import BAD_ROWS, UnusableRowError
from tunesmith.data.formats.marks import MARKS, read_mark, with_row_marks
from tunesmith.data.formats.registry import build_format
from tunesmith.data.records import Message


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


TURNS = [Message("user", "a"), Message("assistant", "b"), Message("user", "c"), Message("assistant", "d")]


def trained(values, turns=TURNS, **spec):
    return [turn.trained for turn in with_row_marks(turns, values, spec_of("sharegpt", **spec))]


@pytest.mark.parametrize("name", MARKS)
def test_a_list_of_the_row_marks_its_turns(name):
    assert trained({name: [0, 1, False, 0]}) == [None, True, None, False]
    assert trained({name: (None, None, None, "0")}) == [None, None, None, False]
    assert trained({name: None}) == trained({}) == [None] * 4


def test_lists_and_marks_of_turns_add_up_where_they_agree():
    own = [*TURNS[:3], Message("assistant", "d", trained=False)]
    assert trained({"train": [None, True, None, None], "weight": [0, 1, 0, 0]}, own) == [None, True, None, False]


@pytest.mark.parametrize("value", [0.5, 1, "yes", {"a": 1}])
def test_a_column_that_is_called_so_by_chance_is_not_looked_at(value):
    assert trained({"weight": value}) == [None] * 4


def test_a_column_of_another_name_is_named_in_the_entry():
    columns = {"messages": "conversations", "loss_mask": "learn", "weight": None}
    values = {"learn": [0, 0, 0, 1], "loss_mask": [1], "weight": [1, 2, 3]}
    assert trained(values, columns=columns) == [None, False, None, True]


@pytest.mark.parametrize(
    ("values", "spec", "reason", "detail"),
    [
        (
            {"loss_mask": [0, 1]},
            {},
            "marks do not fit the turns",
            "loss_mask: expected 4 entries, one for each turn, found 2 (if the column means something else, set it to",
        ),
        ({"weight": [0, 0.5, 0, 1]}, {}, "wrong type", "weight[1]: expected 0 or 1 (shares of a weight are not"),
        (
            {"weight": 1},
            {"declared": ("weight",)},
            "wrong type",
            "weight: expected a list with an entry for each turn,",
        ),
        (
            {"train": [0, 1, 0, 1], "weight": [0, 1, 0, 0]},
            {},
            "marks of a turn contradict each other",
            "turn 4: train[3] is true, weight[3] is false",
        ),
        (
            {"train": [1, 1, 0, 1]},
            {},
            "mark on a turn that is not an answer",
            "turn 1 is of role user: expected no mark",
        ),
    ],
)
def test_lists_that_cannot_be_followed_are_refused(values, spec, reason, detail):
    with pytest.raises(UnusableRowError) as caught:
        trained(values, **spec)
    assert caught.value.dropped.reason == reason
    assert reason in BAD_ROWS
    assert caught.value.dropped.detail.startswith(detail)


def test_a_list_that_contradicts_a_turn_is_refused():
    own = [*TURNS[:3], Message("assistant", "d", trained=False)]
    with pytest.raises(UnusableRowError) as caught:
        trained({"train": [0, 0, 0, 1]}, own)
    assert caught.value.dropped.detail == "turn 4: train[3] is true, its own mark is false"


SPEAKERS = ("human", "gpt", "human", "gpt")
SHAREGPT = {"conversations": [{"from": role, "value": "x"} for role in SPEAKERS], "system": "s"}
OPENAI = {"messages": [{"role": role, "content": "x"} for role in ("system", "user", "assistant")]}
ALPACA = {"instruction": "c", "output": "d", "history": [["a", "b"]], "system": "s"}


@pytest.mark.parametrize(
    ("formatting", "columns", "row", "mask", "expected"),
    [
        (
            "sharegpt",
            {"messages": "conversations", "system": "system"},
            SHAREGPT,
            [0, 0, 0, 1],
            [None] * 2 + [False, None, True],
        ),
        ("openai", {"messages": "messages"}, OPENAI, [0, 0, 0], [None, None, False]),
        (
            "alpaca",
            {"prompt": "instruction", "response": "output", "history": "history", "system": "system"},
            ALPACA,
            [0, 0, 0, 1],
            [None, None, False, None, True],
        ),
    ],
)
def test_every_format_of_conversations_takes_lists_of_the_row(formatting, columns, row, mask, expected):
    convert = build_format(spec_of(formatting, columns=columns), "sft")
    conversation = convert({**row, "loss_mask": mask})
    assert [message.trained for message in conversation.messages] == expected
    assert convert({**row, "loss_mask": [*mask, 1]}).reason == "marks do not fit the turns"


def test_a_rated_completion_that_is_marked_as_not_learnt_has_nothing_to_learn():
    convert = build_format(spec_of("sharegpt", columns={"messages": "conversations"}), "kto")
    feedback = convert({**SHAREGPT, "label": True, "train": [0, 1, 0, 0]})
    assert [message.trained for message in (*feedback.prompt, *feedback.completion)] == [None, True, None, False]


def test_pairs_are_learnt_as_a_whole_whatever_is_beside_them():
    answers = {"chosen": {"from": "gpt", "value": "y"}, "rejected": {"from": "gpt", "value": "n"}}
    convert = build_format(spec_of("sharegpt", columns={"messages": "conversations"}), "dpo")
    pair = convert({"conversations": [{"from": "human", "value": "x"}], **answers, "loss_mask": [0, 1]})
    assert pair.chosen[0].content == "y"
