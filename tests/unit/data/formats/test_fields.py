import pytest

from tunesmith.data.formats.fields import (
    UnusableRowError,
    build_fill,
    read_flag,
    read_list,
    read_required_text,
    read_text,
)


def test_missing_and_null_are_empty():
    assert read_text({}, "a") == read_text({"a": None}, "a") == read_text({"a": "x"}, None) == ""
    assert read_list({}, "a") == read_list({"a": None}, "a") == ()


def test_long_values_are_shortened_in_messages():
    with pytest.raises(UnusableRowError) as caught:
        read_text({"a": ["x" * 100]}, "a")
    assert len(caught.value.dropped.detail) < 110


def test_filling_leaves_unknown_names_and_does_not_fill_twice():
    fill = build_fill((("a", "{{b}}"), ("b", "x")))
    assert fill("{{a}} {{ b }} {{c}} {a}") == "{{b}} x {{c}} {a}"
    assert build_fill(())("{{a}}") == "{{a}}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((value, True) for value in (True, 1, 1.0, "true", "True", " TRUE ", "1")),
        *((value, False) for value in (False, 0, 0.0, "false", "False", "0")),
        (None, None),
    ],
)
def test_a_flag_is_written_in_many_ways(value, expected):
    assert read_flag({"label": value}, "label") is expected


@pytest.mark.parametrize("value", [2, -1, 0.5, "yes", "", "good", [], {}, float("nan")])
def test_anything_else_is_no_flag(value):
    with pytest.raises(UnusableRowError) as caught:
        read_flag({"label": value}, "label")
    assert caught.value.dropped.detail.startswith("label: expected true or false, 1 or 0, found ")


def test_a_required_text_is_there():
    assert read_required_text({"a": ""}, "a") == ""
    for row in ({}, {"a": None}):
        with pytest.raises(UnusableRowError, match="column is missing"):
            read_required_text(row, "a")
