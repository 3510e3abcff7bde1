from tunesmith.data.chat.segment import Segment
from tunesmith.data.records import Message
from tunesmith.data.tokenization.masks import learnt_pieces, trained_spans

MESSAGES = [Message("user", "Q"), Message("assistant", "A"), Message("user", "R"), Message("assistant", "B")]
ROW = [
    Segment("Q", False, 1),
    Segment("A", True, 1),
    Segment("R", False, 3),
    Segment("B", True, 3),
    Segment(".", False, 3),
]


def test_answers_stand_at_odd_places():
    assert learnt_pieces(ROW, MESSAGES, only_last=False) == ["Q", "A", "R", "B", "."]


def test_what_is_not_learnt_is_joined():
    assert learnt_pieces(ROW, MESSAGES, only_last=True) == ["QAR", "B", "."]


def test_an_answer_marked_as_not_trained_is_joined_too():
    messages = [*MESSAGES[:3], Message("assistant", "B", trained=False)]
    assert learnt_pieces(ROW, messages, only_last=False) == ["Q", "A", "RB."]
    assert learnt_pieces(ROW, messages, only_last=True) == ["QARB."]


def test_spans_are_half_open_and_skip_empty_pieces():
    assert trained_spans([[9, 9], [9, 9, 9], [9], [9], []]) == [2, 5, 6, 7]
    assert trained_spans([[9], [], [9]]) == []
