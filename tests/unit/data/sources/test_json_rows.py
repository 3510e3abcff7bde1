import json

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tunesmith.data.sources import json_rows
from tunesmith.data.sources.problems import UnreadableValue
from tunesmith.data.sources.rows import read_file
from tunesmith.errors import DataError

TEXT = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ROWS = st.lists(st.dictionaries(TEXT, JSON, max_size=3), max_size=4)


def values(path):
    return [row.values for row in read_file(path)]


def test_an_array_gives_the_same_rows_wherever_the_window_ends(tmp_path, monkeypatch):
    path = tmp_path / "rows.json"

    @limits(max_examples=60, deadline=None)
    @given(ROWS, st.sampled_from([1, 7, 64]), st.sampled_from([None, 1]), st.booleans())
    def holds(rows, window, indent, ascii_only):
        monkeypatch.setattr(json_rows, "WINDOW_CHARACTERS", window)
        path.write_text(json.dumps(rows, indent=indent, ensure_ascii=ascii_only), encoding="utf-8", errors="ignore")
        assert values(path) == json.loads(path.read_text(encoding="utf-8"))

    holds()


@pytest.mark.parametrize("window", [1, 5, 1000])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1},\n {"b" 2}]', r"at line 2, column 7: Expecting ':' delimiter \(row 2\)"),
        ('[{"a": 1},\n\n {"b": 2} {"c": 3}]', r"at line 3, column 10: expected a comma or \] after the row \(row 2\)"),
        ('[{"a": 1}', r"at line 1, column 10: expected a comma or \] after the row \(row 1\)"),
        (
            '[{"a": 1},',
            r"at line 1, column 11: Expecting value \(row 2\); the file ends without a \], as it does",
        ),
        ('[{"a": 1},\n ]', r"at line 2, column 2: Expecting value \(row 2\); there is a comma too many before the \]"),
        ('[{"a": 1}] [', r"at line 1, column 12: there is something after the array \(row 2\)"),
        ('[{"a": "x', r"at line 1, column 8: Unterminated string starting at \(row 1\)"),
        ("[", r"at line 1, column 2: Expecting value \(row 1\)"),
        ('[{"a": "b\n"}]', r"at line 1, column 10: Invalid control character at \(row 1\)"),
    ],
)
def test_what_is_not_json_is_named_with_row_line_and_column(tmp_path, monkeypatch, window, text, message):
    monkeypatch.setattr(json_rows, "WINDOW_CHARACTERS", window)
    path = tmp_path / "rows.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"rows\.json: not valid JSON " + message):
        values(path)


def test_a_mistake_far_from_the_end_is_found_without_reading_on(tmp_path, monkeypatch):
    monkeypatch.setattr(json_rows, "WINDOW_CHARACTERS", 100)
    path = tmp_path / "rows.json"
    path.write_text('[{"a" 1}, ' + '{"a": 1}, ' * 1000, encoding="utf-8")
    read = []
    original = json_rows.ArrayReader._grow
    monkeypatch.setattr(json_rows.ArrayReader, "_grow", lambda self: (read.append(1), original(self)))
    with pytest.raises(DataError, match=r"column 7: Expecting ':' delimiter \(row 1\)"):
        values(path)
    assert len(read) == 1


def test_no_more_than_a_window_and_a_row_is_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(json_rows, "WINDOW_CHARACTERS", 1000)
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"text": "x" * (n % 300)} for n in range(2000)]), encoding="utf-8")
    longest = 0
    original = json_rows.ArrayReader._grow

    def grow(self):
        nonlocal longest
        original(self)
        longest = max(longest, len(self._text))

    monkeypatch.setattr(json_rows.ArrayReader, "_grow", grow)
    assert len(values(path)) == 2000
    assert longest < 2 * 1000 + 400


def test_a_row_longer_than_many_windows_is_parsed_a_few_times_only(tmp_path, monkeypatch):
    monkeypatch.setattr(json_rows, "WINDOW_CHARACTERS", 10)
    path = tmp_path / "rows.json"
    rows = [{"text": "x" * 100_000}]
    path.write_text(json.dumps(rows), encoding="utf-8")
    grown = []
    original = json_rows.ArrayReader._grow
    monkeypatch.setattr(json_rows.ArrayReader, "_grow", lambda self: (grown.append(1), original(self)))
    assert values(path) == rows
    assert len(grown) < 25


def test_what_is_no_object_is_named_by_its_row(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('[{"a": 1}, 12, "x"]', encoding="utf-8")
    assert [row.problem for row in read_file(path)] == [
        None,
        "expected an object, found int",
        "expected an object, found str",
    ]
    path.write_text(" [ ] \n", encoding="utf-8")
    assert values(path) == []


@pytest.mark.parametrize("window", [1, 1000])
@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl"])
def test_of_a_key_that_is_there_twice_neither_value_is_taken_for_the_right_one(tmp_path, monkeypatch, window, name):
    monkeypatch.setattr(json_rows, "WINDOW_CHARACTERS", window)
    rows = ['{"a": 1, "b": 2, "a": 3}', '{"t": [{"x": {"a": 1, "a": 1}}]}']
    (tmp_path / name).write_text("\n".join(rows) if name.endswith("l") else f"[{', '.join(rows)}]")
    twice = UnreadableValue("two values under 'a'")
    assert values(tmp_path / name) == [{"a": twice, "b": 2}, {"t": [{"x": {"a": twice}}]}]
