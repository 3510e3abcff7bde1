import pytest

from tests.unit.data.formats.specs import spec_of
from tunesmith.data.formats import build_format
from tunesmith.data.records import Conversation, Document, Dropped, Message

ALL_COLUMNS = {"prompt": "q", "query": "in", "response": "a", "history": "h", "system": "s", "tools": "t"}


def convert(values, stage="sft", **spec):
    return build_format(spec_of("alpaca", **spec), stage)(values)


def test_instruction_and_input_are_joined_by_a_newline():
    record = convert({"instruction": "Add.", "input": "1 and 2", "output": "3"})
    assert record == Conversation((Message("user", "Add.\n1 and 2"), Message("assistant", "3")))


@pytest.mark.parametrize(
    ("values", "question"),
    [
        ({"instruction": "Hi", "input": "", "output": "x"}, "Hi"),
        ({"instruction": "", "input": "Hi", "output": "x"}, "Hi"),
        ({"instruction": "Hi", "input": None, "output": "x"}, "Hi"),
        ({"instruction": "Hi", "output": "x"}, "Hi"),
        ({"instruction": "", "output": "x"}, ""),
    ],
)
def test_empty_parts_of_the_question_leave_no_newline(values, question):
    assert convert(values).messages[0] == Message("user", question)


def test_system_history_and_tools_come_from_their_columns():
    values = {"s": "Be kind.", "h": [["A?", "a"], ("B?", "b")], "q": "C?", "a": "c", "t": [{"name": "f"}]}
    record = convert(values, columns=ALL_COLUMNS)
    assert [(m.role, m.content) for m in record.messages] == [
        ("system", "Be kind."),
        ("user", "A?"),
        ("assistant", "a"),
        ("user", "B?"),
        ("assistant", "b"),
        ("user", "C?"),
        ("assistant", "c"),
    ]
    assert record.tools == '[{"name": "f"}]'


def test_an_empty_answer_is_kept_and_a_missing_one_is_not():
    assert convert({"instruction": "Hi", "output": ""}).messages[-1] == Message("assistant", "")
    assert convert({"instruction": "Hi", "output": None}) == Dropped("no answer")
    assert convert({"instruction": "Hi"}) == Dropped("no answer")


@pytest.mark.parametrize("values", [{"output": "x"}, {"input": "", "output": "x"}, {"input": None, "output": "x"}])
def test_a_missing_question_drops_the_row(values):
    assert convert(values) == Dropped("no question")


def test_a_question_may_stand_in_the_input_alone():
    assert convert({"input": "Hi", "output": "x"}).messages[0] == Message("user", "Hi")


def test_a_misnamed_column_is_reported_with_those_that_are_there():
    dropped = convert({"instruction": "Hi", "input": "", "answer": "x"}, columns={"prompt": "q", "response": "answer"})
    assert dropped == Dropped("no question")
    assert dropped.detail == "column 'q' is missing; the row has 'instruction', 'input', 'answer'"
    assert convert({"instruction": "Hi", "output": None}).detail == "column 'output' is empty"


@pytest.mark.parametrize(
    ("values", "detail"),
    [
        ({"instruction": "Hi", "output": 4}, "output: expected text, found a number (4)"),
        ({"instruction": ["Hi"], "output": "x"}, "instruction: expected text, found a list (['Hi'])"),
        ({"instruction": "Hi", "input": {"a": 1}, "output": "x"}, "input: expected text, found an object ({'a': 1})"),
    ],
)
def test_wrong_types_name_field_expected_and_found(values, detail):
    dropped = convert(values)
    assert dropped == Dropped("wrong type")
    assert dropped.detail == detail


@pytest.mark.parametrize("pair", [["only one"], ["a", 1], "ab", None])
def test_history_that_is_not_pairs_is_named_with_its_place(pair):
    dropped = convert({"q": "C", "a": "c", "h": [["A", "a"], pair]}, columns=ALL_COLUMNS)
    assert dropped.detail.startswith("h[1]: expected a pair of texts [question, answer], found")


def test_pretraining_takes_all_texts_of_a_row_as_one_document():
    assert convert({"text": "One."}, "pt", columns={"prompt": "text"}) == Document("One.")
    assert convert({"instruction": "A", "input": "B", "output": "C"}, "pt") == Document("A\nB\nC")
    assert convert({"instruction": " "}, "pt") == Dropped("no text")


def test_row_variables_are_filled_in():
    record = convert(
        {"instruction": "Who are you, {{name}}?", "output": "I am {{ name }} by {{author}}, not {{other}}."},
        row_variables=(("name", "Ada"), ("author", "{{name}}")),
    )
    assert [m.content for m in record.messages] == ["Who are you, Ada?", "I am Ada by {{name}}, not {{other}}."]
