import pytest

from tunesmith.data.encoding import has_empty_answer
from tunesmith.data.records import Conversation, Document, Dropped, Feedback, Message, Preference, ToolCall

ASK = Message("user", "Well?")
SAY, NOTHING, BLANK = (Message("assistant", text) for text in ("Yes.", "", " \n"))
CALL = Message("assistant", "", (ToolCall("look", "{}"),))


@pytest.mark.parametrize(
    ("record", "is_empty"),
    [
        (Conversation((ASK, SAY)), False),
        (Conversation((ASK, NOTHING)), True),
        (Conversation((ASK, BLANK, ASK, SAY)), True),
        (Conversation((ASK, CALL)), False),
        (Conversation((Message("user", ""), SAY)), False),
        (Conversation((ASK, Message("assistant", "", trained=False), ASK, SAY)), False),
        (Preference((ASK,), (SAY,), (NOTHING,)), True),
        (Preference((ASK,), (SAY,), (SAY,)), False),
        (Feedback((ASK,), (BLANK,), True), True),
        (Document(""), False),
        (Dropped("no answer"), False),
    ],
)
def test_an_empty_answer_is_one_that_is_learnt_and_says_nothing(record, is_empty):
    assert has_empty_answer(record) is is_empty
