import pytest

from tunesmith.data.sources.detection import detect_format
from tunesmith.errors import DataError

OPENAI = [{"role": "user", "content": "a"}]
SHAREGPT = [{"from": "human", "value": "a"}]


@pytest.mark.parametrize(
    ("row", "columns", "tags", "formatting", "renamed"),
    [
        ({"messages": OPENAI}, {}, {}, "openai", {"messages": "messages"}),
        ({"messages": SHAREGPT}, {}, {}, "sharegpt", {"messages": "messages"}),
        ({"conversations": OPENAI}, {}, {}, "openai", {"messages": "conversations"}),
        ({"conversations": [], "id": 3}, {}, {}, "sharegpt", {"messages": "conversations"}),
        ({"messages": []}, {}, {}, "openai", {"messages": "messages"}),
        ({"messages": [{"who": "a", "says": "b"}]}, {}, {"role_tag": "who"}, "sharegpt", {"messages": "messages"}),
        ({"messages": [{"role": "assistant", "tool_calls": []}]}, {}, {}, "openai", {"messages": "messages"}),
        ({"talk": SHAREGPT}, {"messages": "talk"}, {}, "sharegpt", {}),
        ({"chosen": OPENAI, "rejected": OPENAI}, {}, {}, "openai", {}),
        ({"better": SHAREGPT, "worse": SHAREGPT}, {"chosen": "better", "rejected": "worse"}, {}, "sharegpt", {}),
        ({"instruction": "a", "output": "b"}, {}, {}, "alpaca", {}),
        ({"q": "a", "a": "b"}, {"prompt": "q", "response": "a"}, {}, "alpaca", {}),
        ({"prompt": "a", "completion": "b"}, {}, {}, "alpaca", {"prompt": "prompt", "response": "completion"}),
        ({"question": "a", "answer": "b"}, {}, {}, "alpaca", {"prompt": "question", "response": "answer"}),
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, {}, {}, "alpaca", {"prompt": "prompt"}),
        ({"text": "a", "instruction": "b"}, {"prompt": "instruction"}, {}, "alpaca", {}),
        ({"text": "a", "url": 3}, {}, {}, "text", {}),
        ({"text": "a", "output": 3}, {"prompt": "text"}, {}, "text", {}),
        ({"body": "a"}, {"prompt": "body", "query": None}, {}, "text", {}),
    ],
)
def test_the_columns_of_the_first_row_tell_the_format(row, columns, tags, formatting, renamed):
    found = detect_format([row], columns, tags, "rows.json")
    assert (found.formatting, found.columns) == (formatting, renamed)
    assert found.reason


def test_the_first_row_that_tells_decides():
    rows = [{}, {"id": 3}, {"messages": OPENAI}, {"text": "a"}]
    assert detect_format(rows, {}, {}, "rows.json").formatting == "openai"
    with pytest.raises(DataError, match=r"rows.json: the columns 'id' do not say"):
        detect_format(rows[:2], {}, {}, "rows.json")


@pytest.mark.parametrize("row", [{}, {"foo": 1}, {"messages": "text"}, {"prompt": [1], "completion": "x"}])
def test_rows_that_do_not_say_are_refused_with_what_would(row):
    with pytest.raises(DataError, match=r"rows.json: the columns .* do not say how the rows are meant. Known are"):
        detect_format([row], {}, {}, "rows.json")
