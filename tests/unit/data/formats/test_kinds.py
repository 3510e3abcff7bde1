import json

import pytest

from tests.unit.data.formats.specs import spec_of
from tunesmith.data.formats.kinds import check_kind
from tunesmith.errors import DataError


@pytest.fixture
def check(tmp_path):
    def check(rows, formatting, stage, *, columns=None, needs_declared=True, **rest):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        spec = spec_of(formatting, columns=columns, files=(path,), **rest)
        check_kind(spec, stage, needs_declared=needs_declared)

    return check


@pytest.mark.parametrize(
    ("row", "formatting", "stage", "message"),
    [
        (
            {"text": "a"},
            "text",
            "sft",
            "holds plain text .*stage sft learns from answers: there is no column",
        ),
        ({"text": "a"}, "text", "dpo", "stage dpo learns from pairs of answers"),
        (
            {"text": "a"},
            "alpaca",
            "sft",
            r"row 1: expected the column 'output' \(response\), found 'text'; none",
        ),
        ({"text": "a"}, "sharegpt", "sft", r"expected the column 'conversations' \(messages\)"),
        ({}, "openai", "sft", "found no columns"),
        ({"output": "a"}, "alpaca", "pt", r"expected the column 'instruction' \(prompt\)"),
    ],
)
def test_a_data_set_of_another_kind_is_named_with_stage_and_what_is_missing(check, row, formatting, stage, message):
    with pytest.raises(DataError, match=f"data set 'toy' .*{message}"):
        check([row], formatting, stage)


def test_a_misspelt_column_is_pointed_at(check):
    with pytest.raises(DataError, match=r"did you mean 'ouput'\? then write `columns: {response: 'ouput'}`"):
        check([{"instruction": "Q", "ouput": "A"}], "alpaca", "sft")


def test_one_row_that_has_the_column_is_enough(check):
    check([{"x": 1}, {"output": "a"}], "alpaca", "sft")
    check([], "alpaca", "sft")


def test_a_column_that_somebody_wrote_down_is_in_some_row(check):
    columns = {"prompt": "instruction", "response": "output", "query": "inptu"}
    row = {"instruction": "a", "input": "b", "output": "c"}
    with pytest.raises(DataError, match=r"row 1: expected the column 'inptu' \(query\), found 'instruction', 'input'"):
        check([row], "alpaca", "sft", columns=columns, declared=("inptu",))
    check([row], "alpaca", "sft", columns=columns, declared=("inptu",), needs_declared=False)


def test_the_reason_for_a_format_is_told_where_it_was_detected(check):
    with pytest.raises(DataError, match=r"holds plain text \(format text, since the rows have 'text'\)"):
        check([{"text": "a"}], "text", "sft", notes=("format text, since the rows have 'text'",))
