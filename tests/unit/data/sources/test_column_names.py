import pytest

from tunesmith.data.sources.column_names import find_near_name, render_names, suggest_columns


def test_names_are_shown_short_and_not_all():
    assert render_names(["a", "b c", 3]) == "'a', 'b c', '3'"
    assert render_names(["x" * 99]) == f"'{'x' * 40}...'"
    assert render_names(range(40)).endswith("'11' and 28 more")
    assert render_names([]) == ""


@pytest.mark.parametrize(
    ("wanted", "names", "near"),
    [
        ("output", ["input", "Output"], "Output"),
        ("output", ["input", " output "], " output "),
        ("output", ["ouput"], "ouput"),
        ("output", ["answer", "text", 3], None),
    ],
)
def test_a_name_is_found_by_what_it_was_meant_to_be(wanted, names, near):
    assert find_near_name(wanted, names) == near


@pytest.mark.parametrize(
    ("row", "is_alone", "suggestion"),
    [
        ({"Instruction": "", "output ": ""}, False, "`columns: {prompt: 'Instruction', response: 'output '}` is meant"),
        ({"Input": "", "body": ""}, False, ""),
        ({"message": [{}]}, False, "`columns: {messages: 'message'}` is meant"),
        ({"messages": "[]"}, False, "'messages' holds text, and a list of turns is expected: write it as JSON"),
        ({"data": [{"a": 1}]}, True, "If the objects in 'data' are the rows, write that list alone"),
        ({"1": {}, "2": {}}, True, "write them as an array, without the names"),
        ({"data": [{"a": 1}]}, False, ""),
        ({"data": [], "b": 1}, True, ""),
        ({}, True, ""),
    ],
)
def test_what_is_probably_meant_is_suggested(row, is_alone, suggestion):
    found = suggest_columns(row, is_alone=is_alone)
    assert suggestion in found
    assert bool(found) is bool(suggestion)
