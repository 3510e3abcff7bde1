from pathlib import Path

import pytest

from tests.unit.data.formats.specs import spec_of
from tunesmith.data.formats.bad_rows import BadRow, check_counted, check_no_bad_rows, is_bad
from tunesmith.errors import DataError

FILES = (Path("folder/rows.json"), Path("folder/more.json"))


def row(number, reason="wrong type", detail=": output: expected text, found a number (7)"):
    return BadRow(reason, f"rows.json row {number}{detail}")


@pytest.mark.parametrize(
    ("reason", "options", "stops"),
    [
        ("wrong type", {"bad_rows": "error"}, True),
        ("wrong type", {"bad_rows": "skip"}, False),
        ("no answer", {"bad_rows": "error"}, True),
        ("no text", {"bad_rows": "error"}, False),
        ("two answers in a row", {"bad_rows": "error"}, False),
        ("two answers in a row", {"turn_order_policy": "error"}, True),
        ("half of a character", {"bad_rows": "error", "turn_order_policy": "error"}, False),
    ],
)
def test_a_run_stops_for_what_is_not_as_it_should_be_as_the_settings_say(reason, options, stops):
    assert is_bad(reason, spec_of("alpaca", **options)) is stops


def test_the_first_three_are_named_with_the_ways_out():
    with pytest.raises(DataError) as caught:
        check_no_bad_rows([row(1), row(2, "two answers in a row", ""), row(5), row(6)], spec_of("alpaca", files=FILES))
    assert str(caught.value) == (
        "data set 'toy' has rows that are not as they should be, read as format alpaca from folder:\n"
        "  wrong type: rows.json row 1: output: expected text, found a number (7)\n"
        "  two answers in a row: rows.json row 2\n"
        "  wrong type: rows.json row 5: output: expected text, found a number (7)\n"
        "Correct them, or the columns and tags of the data set; `bad_rows: skip` leaves such rows out and counts them; "
        "`stringify_values: true` takes numbers, lists and objects as text; `turn_order_policy: merge` or `skip` goes "
        "on without them."
    )


def test_a_way_out_that_is_taken_is_not_offered():
    with pytest.raises(DataError) as caught:
        check_no_bad_rows([row(1)], spec_of("alpaca", stringify_values=True))
    assert "stringify_values" not in str(caught.value)
    check_no_bad_rows([], spec_of("alpaca"))


def test_rows_that_were_counted_for_a_run_that_skips_them_stop_one_that_does_not():
    dropped = {"no text": 1, "wrong type": 1234, "no answer": 1}
    shown = {"no text": ["a.json row 1"], "wrong type": ["a.json row 2: x", "a.json row 3: y"], "no answer": ["b"]}
    check_counted(dropped, shown, spec_of("text", bad_rows="skip"))
    with pytest.raises(DataError) as caught:
        check_counted(dropped, shown, spec_of("text", bad_rows="error", files=FILES))
    assert str(caught.value).startswith(
        "data set 'toy' has 1,235 rows that are not as they should be, read as format text from folder:\n"
        "  wrong type, 1,234 rows: a.json row 2: x; a.json row 3: y\n"
        "  no answer, 1 row: b\n"
        "Correct them, "
    )
