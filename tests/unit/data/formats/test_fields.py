import pytest

from tunesmith.data.formats.fields import UnusableRowError, build_fill, read_list, read_text


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
