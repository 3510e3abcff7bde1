import gzip
import json

import pytest

from tests.unit.data.streaming.files import KINDS, rows_of, text_spec, write_file
from tunesmith.data.sources.rows import read_file
from tunesmith.data.streaming import cursors
from tunesmith.data.streaming.cursors import Position, describe_place, read_shard
from tunesmith.data.streaming.shards import Shard, cut_shards, find_unit
from tunesmith.errors import DataError


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_shares", [1, 3])
def test_reading_goes_on_behind_any_row(tmp_path, kind, num_shares):
    path = write_file(tmp_path / f"a{kind}", rows_of(14), kind=kind)
    for shard in cut_shards(text_spec(path), 0, num_shares):
        rows = list(read_shard(shard))
        assert len(rows) >= 2
        for number, row in enumerate(rows):
            rest = list(read_shard(shard, Position(row.next_place, row.number)))
            assert rest == rows[number + 1 :]


@pytest.mark.parametrize("kind", [".csv", ".jsonl", ".txt"])
def test_a_byte_order_mark_blank_lines_and_other_line_ends_change_nothing(tmp_path, kind):
    plain = write_file(tmp_path / f"a{kind}", rows_of(5), kind=kind).read_bytes()
    (tmp_path / f"b{kind}").write_bytes(b"\xef\xbb\xbf" + plain.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n\r\n"))
    texts = []
    for name in ("a", "b"):
        (shard,) = cut_shards(text_spec(tmp_path / f"{name}{kind}"), 0, 1)
        rows = list(read_shard(shard))
        texts.append([row.values["text"] for row in rows])
        assert [list(read_shard(shard, Position(row.next_place, row.number))) for row in rows[-1:]] == [[]]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("content", ["", "\n\n", "\n\na\n", "\r\n\r\na\r\n1\r\n2\r\n"])
def test_blank_lines_may_stand_before_the_header_of_a_table(tmp_path, content):
    path = tmp_path / "a.csv"
    path.write_bytes(content.encode())
    (shard,) = cut_shards(text_spec(path), 0, 1)
    rows = list(read_shard(shard))
    assert [row.values for row in rows] == [row.values for row in read_file(path)]
    assert len(rows) == 2 * ("2" in content)
    assert [row for first in rows[:1] for row in read_shard(shard, Position(first.next_place, 1))] == rows[1:]


def test_a_record_over_several_lines_is_one_row(tmp_path):
    path = write_file(tmp_path / "a.csv", [{"text": "one\ntwo"}, {"text": "three"}], kind=".csv")
    (shard,) = cut_shards(text_spec(path), 0, 1)
    first, second = read_shard(shard)
    assert first.values == {"text": "one\ntwo"}
    assert list(read_shard(shard, Position(first.next_place, 1))) == [second]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b'text\n"a"b\n', r"a\.csv: line 2: not valid CSV"),
        ("a.csv", b"te\xfft\na\n", r"a\.csv, header: character 3 is not UTF-8 text"),
        ("a.csv", b"text;more\na;b\n", r"a\.csv: its first line has no comma, but ';'"),
        ("a.json", b'[{"text": "a"},\n{"text": }]', r"a\.json: not valid JSON at line 2"),
        ("a.json", b'[{"text": "\xff"}]', r"a\.json: line 1 or after it: not UTF-8 text"),
        ("a.txt", "a\n".encode("utf-16"), r"a\.txt: the file is UTF-16"),
    ],
)
def test_a_file_that_cannot_be_read_on_is_named_with_the_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read_shard(Shard(tmp_path / name, 0, find_unit(tmp_path / name))))


@pytest.mark.parametrize(
    ("name", "content", "place", "problem"),
    [
        ("a.jsonl", b'{"text": "a"}\n\n{"text": \n{}\n', "line 3", "column 10 is not valid JSON: Expecting value"),
        ("a.jsonl", b'{"text": "a"}\n[1]\n{}\n', "line 2", "expected an object, found list"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n{}\n', "line 2", "character 11 is not UTF-8 text"),
        ("a.jsonl", b"{}\n" + b"[" * 100_000 + b"\n{}\n", "line 2", "the JSON cannot be read: maximum recursion"),
        ("a.txt", b"a\n\xff\nb\n", "line 2", "character 1 is not UTF-8 text"),
        ("a.csv", b"text,more\na,b\nc\nd,e\n", "line 3", "expected 2 fields, found 1"),
        ("a.csv", b"text\na\n\xff\nb\n", "line 3", "character 1 is not UTF-8 text"),
        ("a.json", b'[{"text": "a"},\n[1], {}]', "line 2", "expected an object, found list"),
        ("a.jsonl.gz", gzip.compress(b"{}\n1\n{}\n"), "row 2", "line 2, expected an object, found int"),
    ],
)
def test_a_malformed_row_has_a_place_and_reading_goes_on(tmp_path, name, content, place, problem):
    path = tmp_path / name
    path.write_bytes(content)
    rows = list(read_shard(Shard(path, 0, find_unit(path))))
    assert [row.problem is not None for row in rows] == [False, True, False]
    assert rows[1].values == {}
    assert rows[1].problem.startswith(problem)
    assert describe_place(path, find_unit(path), rows[1].place) == place
    resumed = read_shard(Shard(path, 0, find_unit(path)), Position(rows[0].next_place, rows[0].number))
    assert list(resumed) == rows[1:]


def test_an_array_with_the_name_of_lines_is_read_as_one(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('[{"text": "a"},\n {"text": "b"}]\n')
    (shard,) = cut_shards(text_spec(path), 0, 1)
    assert [row.values["text"] for row in read_shard(shard)] == ["a", "b"]


def test_files_without_rows_give_none(tmp_path):
    for kind in (".csv", ".jsonl", ".txt"):
        (tmp_path / f"a{kind}").touch()
        (shard,) = cut_shards(text_spec(tmp_path / f"a{kind}"), 0, 1)
        assert list(read_shard(shard)) == []


def test_a_place_is_described_as_a_line_or_as_a_row(tmp_path):
    path = write_file(tmp_path / "a.jsonl", rows_of(9), kind=".jsonl")
    (shard,) = cut_shards(text_spec(path), 0, 1)
    places = [row.place for row in read_shard(shard)]
    assert [describe_place(path, "lines", place) for place in places[::4]] == ["line 1", "line 5", "line 9"]
    assert describe_place(path, "groups", 1234) == "row 1,235"


@pytest.mark.parametrize("kind", [".arrow", ".stream.arrow"])
def test_a_damaged_arrow_file_is_named_with_the_place(tmp_path, kind):
    path = write_file(tmp_path / f"a{kind}", [{"text": "fifteen letters"}] * 8, kind=kind)
    content = path.read_bytes()
    borders = (30).to_bytes(4, "little") + (45).to_bytes(4, "little")  # of the third text in a group of four
    assert content.count(borders) == 2
    second = content.rindex(borders)
    path.write_bytes(content[:second] + (1 << 30).to_bytes(4, "little") + content[second + 4 :])
    shard = Shard(path, 0, find_unit(path))
    rows = read_shard(shard)
    assert [next(rows).place for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(DataError, match=r"a\..*arrow: (row 5 or after it: )?not a readable (Arrow )?file"):
        next(rows)
    with pytest.raises(DataError, match="not a readable"):
        next(read_shard(shard, Position(7, 7)))


def test_a_file_that_goes_away_is_named(tmp_path):
    with pytest.raises(DataError, match=r"gone\.jsonl cannot be read"):
        list(read_shard(Shard(tmp_path / "gone.jsonl", 0, "lines")))


@pytest.mark.parametrize("layout", ["[%s]", "\ufeff [\n %s\n]\n"])
@pytest.mark.parametrize("window", [3, 40, 100_000])
def test_an_array_is_gone_on_with_at_any_element(tmp_path, monkeypatch, layout, window):
    monkeypatch.setattr(cursors, "WINDOW_CHARACTERS", window)
    path = tmp_path / "a.json"
    path.write_text(layout % " ,\n".join(json.dumps(row, ensure_ascii=False) for row in rows_of(12)), encoding="utf-8")
    (shard,) = cut_shards(text_spec(path), 0, 1)
    assert shard.unit == "array"
    rows = list(read_shard(shard))
    assert [row.values for row in rows] == rows_of(12)
    for number, row in enumerate(rows):
        assert list(read_shard(shard, Position(row.next_place, row.number))) == rows[number + 1 :]


def test_what_is_wrong_behind_the_place_of_a_checkpoint_is_named_by_its_bytes(tmp_path):
    (tmp_path / "a.json").write_text('[{"text": "a"}, {"text": "b"}, nothing]')
    (shard,) = cut_shards(text_spec(tmp_path / "a.json"), 0, 1)
    first = next(read_shard(shard))
    with pytest.raises(DataError, match=r"a\.json: not valid JSON 16 bytes behind byte 15: Expecting value"):
        list(read_shard(shard, Position(first.next_place, 1)))


def test_an_empty_array_has_no_rows(tmp_path):
    (tmp_path / "a.json").write_text("[ ]")
    (shard,) = cut_shards(text_spec(tmp_path / "a.json"), 0, 1)
    assert list(read_shard(shard)) == []
