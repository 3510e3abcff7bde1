import gzip
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.data.formats.specs import spec_of
from tunesmith.data.sources import read_rows
from tunesmith.data.sources import rows as rows_module
from tunesmith.data.sources.files import find_files
from tunesmith.data.sources.rows import count_rows, peek_rows
from tunesmith.errors import DataError

ROWS = [{"a": "é🙂", "b": "x\ny"}, {"a": "", "b": "2"}, {"a": "007", "b": "z"}]
BOM = "\ufeff"


def read(path, chunk_rows=1000):
    spec = spec_of("alpaca")
    from dataclasses import replace

    return [row for chunk in read_rows(replace(spec, files=find_files(path, "toy")), chunk_rows) for row in chunk]


def values(path):
    return [row.values for row in read(path)]


def write(path, text):
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("bom", ["", BOM])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_text_file_gives_the_same_rows(tmp_path, bom, end):
    lines = end.join(json.dumps(row, ensure_ascii=False) for row in ROWS)
    array = json.dumps(ROWS, ensure_ascii=False, indent=1).replace("\n", end)
    table = '"a","b"' + end + end.join(f'"{row["a"]}","{row["b"]}"' for row in ROWS) + end
    assert values(write(tmp_path / "a.jsonl", f"{bom}{lines}{end}{end}")) == ROWS
    assert values(write(tmp_path / "b.json", bom + array)) == ROWS
    assert values(write(tmp_path / "c.json", bom + lines)) == ROWS
    assert values(write(tmp_path / "d.csv", bom + table)) == ROWS


def test_columnar_files_give_the_same_rows(tmp_path):
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.OSFile(str(tmp_path / "b.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pa.OSFile(str(tmp_path / "c.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    for name in ("a.parquet", "b.arrow", "c.arrow"):
        assert values(tmp_path / name) == ROWS, name


def test_values_may_differ_in_type_from_row_to_row(tmp_path):
    rows = [{"a": 1}, {"a": "x", "b": {"c": [1, "d"]}}, {"a": None}]
    assert values(write(tmp_path / "a.json", json.dumps(rows))) == rows


def test_text_files_give_one_row_per_line_that_is_not_empty(tmp_path):
    path = write(tmp_path / "a.txt", f"{BOM}one\r\n\r\n  \n two \n三")
    assert values(path) == [{"text": "one"}, {"text": " two "}, {"text": "三"}]


def test_rows_know_their_file_and_place(tmp_path):
    write(tmp_path / "b.jsonl", '{"n": 2}\n')
    write(tmp_path / "a.jsonl", '{"n": 0}\n\n{"n": 1}\n')
    write(tmp_path / ".hidden", "x")
    assert [(row.file.name, row.row, row.values["n"]) for row in read(tmp_path)] == [
        ("a.jsonl", 0, 0),
        ("a.jsonl", 1, 1),
        ("b.jsonl", 0, 2),
    ]


def test_rows_come_in_chunks(tmp_path):
    from dataclasses import replace

    path = write(tmp_path / "a.jsonl", '{"n": 1}\n' * 5)
    chunks = list(read_rows(replace(spec_of("alpaca"), files=(path,)), 2))
    assert [len(chunk) for chunk in chunks] == [2, 2, 1]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '[{"a": 1},\n{"b"}]', "a.json: not valid JSON at line 2, column 5"),
        ("a.csv", 'a,b\n"1"x,2\n', "line 2 is not valid CSV"),
        ("a.parquet", "nonsense", "a.parquet: not a readable Parquet file"),
        ("a.arrow", "nonsense", "a.arrow: not a readable Arrow file"),
    ],
)
def test_files_that_cannot_be_read_on_are_named_with_the_place(tmp_path, name, text, message):
    with pytest.raises(DataError, match=message):
        read(write(tmp_path / name, text))


CUT = "; the file ends here, as it does where its writer was stopped"


@pytest.mark.parametrize(
    ("name", "content", "row", "problem"),
    [
        ("a.jsonl", b'{"a": 1}\n{"a": \n', 1, "line 2, column 7 is not valid JSON: Expecting value, at '{\"a\": '"),
        ("a.jsonl", b'{}\n\n{"a": "x', 1, f"column 7 is not valid JSON: Unterminated string .*, at '.*'{CUT}"),
        (
            "a.jsonl",
            b'{"a": 1}{"a": 2}\n',
            0,
            "column 9 is not valid JSON: Extra data, .*; a line holds one object and",
        ),
        ("a.jsonl", b"{}\n" + b"\0" * 99, 1, "line 2, column 1 is not valid JSON: zero bytes, as a machine that went"),
        ("a.jsonl", b"{'a': 1}\n", 0, "Expecting property name enclosed in double quotes, at \"{'a': 1}\"$"),
        ("a.jsonl", b'{"a": 1}\n[1]\n', 1, "line 2, expected an object, found list"),
        ("a.jsonl", b"[1]\n[2]\n", 0, "line 1, expected an object, found list"),
        (
            "a.jsonl",
            '{}\n{"a": "café"}\n'.encode("latin-1"),
            1,
            r"line 2, character 11 is not UTF-8 .*\(byte 0xe9\); save",
        ),
        ("a.json", b'[{"a": 1}, 3, {}]', 1, "expected an object, found int"),
        ("a.csv", b"a,b\n1,2\n3\n", 1, "line 3, expected 2 fields, found 1"),
        ("a.csv", "a,b\nx,é\n".encode("latin-1"), 0, r"line 2, character 3 is not UTF-8 text \(byte 0xe9\)"),
        ("a.txt", b"one\n\xff\nthree", 1, r"line 2, character 1 is not UTF-8 text \(byte 0xff\)"),
    ],
)
def test_a_malformed_row_has_no_values_and_says_where_and_why(tmp_path, name, content, row, problem):
    (tmp_path / name).write_bytes(content)
    rows = read(tmp_path / name)
    assert next(place for place, found in enumerate(rows) if found.problem is not None) == row
    assert rows[row].values == {}
    assert re.search(problem, rows[row].problem)
    assert [found.row for found in rows] == list(range(len(rows)))


def test_rows_around_malformed_ones_are_read_and_all_are_counted(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"n": 0}\n1\n2\n{"n": 3}\n3\n4\n{"n": 6}\n')
    assert [found.values.get("n") for found in read(path)] == [0, None, None, 3, None, None, 6]
    assert count_rows(path) == 7


def test_byte_order_marks_of_files_that_were_put_behind_each_other_are_no_part_of_a_row(tmp_path):
    assert values(write(tmp_path / "a.jsonl", f'{BOM}{{"n": 0}}\n{BOM}{{"n": 1}}\n')) == [{"n": 0}, {"n": 1}]


@pytest.mark.parametrize("layout", ['[{"n": 0},\n {"n": 1}]\n', '[{"n": 0}, {"n": 1}]\n', '[\n  {"n": 0}, {"n": 1}]'])
def test_an_array_is_read_as_one_whatever_its_name(tmp_path, layout):
    assert values(write(tmp_path / "a.jsonl", layout)) == [{"n": 0}, {"n": 1}]


def test_the_first_rows_are_those_that_can_be_read(tmp_path):
    path = write(tmp_path / "a.jsonl", '1\n{"n": 1}\n2\n{"n": 3}\n')
    assert [row.values["n"] for row in peek_rows((path,), 5)] == [1, 3]


def test_a_file_without_one_row_that_can_be_read_is_named_with_the_first_three(tmp_path, monkeypatch):
    monkeypatch.setattr(rows_module, "_MOST_MALFORMED", 4)
    path = write(tmp_path / "a.jsonl", "{'n': 1}\n" * 9)
    with pytest.raises(
        DataError, match=r"a\.jsonl: none of its first 4 rows can be read:\n  a\.jsonl row 1: line 1, co"
    ):
        peek_rows((path,))


def test_a_folder_holds_one_type_of_files(tmp_path):
    write(tmp_path / "a.jsonl", "{}")
    write(tmp_path / "b.csv", "a")
    with pytest.raises(DataError, match=r"mixes .csv, .jsonl; a data set has one type of file"):
        find_files(tmp_path, "toy")


@pytest.mark.parametrize(
    ("name", "message"),
    [("gone", "does not exist"), ("empty", "holds no files"), ("a.xml", r"type .xml; known: .arrow")],
)
def test_files_that_cannot_be_read_are_refused(tmp_path, name, message):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "a.xml", "<a/>")
    with pytest.raises(DataError, match=message):
        find_files(tmp_path / name, "toy")


def test_the_first_rows_and_their_number_are_those_over_all_files(tmp_path):
    empty, two = write(tmp_path / "a.jsonl", "\n"), write(tmp_path / "b.jsonl", '{"n": 1}\n{"n": 2}\n')
    assert [row.values["n"] for row in peek_rows((empty, two))] == [1]
    assert [row.values["n"] for row in peek_rows((empty, two), 5)] == [1, 2]
    assert peek_rows((empty,)) == []
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "c.parquet")
    assert [count_rows(path) for path in (empty, two, tmp_path / "c.parquet")] == [0, 2, 3]


def test_a_file_without_rows_has_none(tmp_path):
    write(tmp_path / "a.jsonl", "\n")
    assert read(tmp_path / "a.jsonl") == []
    assert read(write(tmp_path / "a.csv", "")) == []
    assert read(write(tmp_path / "a.csv", "\n\n")) == []


def message_of(path):
    with pytest.raises(DataError) as caught:
        read(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("b.json", f'[{{"a": {"9" * 5000}}}]', "the JSON cannot be read: Exceeds the limit"),
        ("d.json", "[" * 100_000, "the JSON cannot be read: maximum recursion depth exceeded"),
        ("e.json", '{\n "data": [{"a": "b"}]\n}', "it begins with one object over several lines"),
        ("f.json", '{ \r\n "a": "b"}', "it begins with one object over several lines"),
        ("f.jsonl", '{\n "a": "b"\n}\n{\n "a": "c"\n}\n', "it begins with one object over several lines"),
        ("g.csv", "a,b,b\n1,2,3\n", "the column 'b' is there twice"),
        ("h.csv", "a;b\n1;2\n", "its first line has no comma, but ';'"),
    ],
)
def test_files_that_cannot_be_read_are_named_with_what_is_wrong(tmp_path, name, text, message):
    found = message_of(write(tmp_path / name, text))
    assert name in found
    assert message in found


def test_a_line_that_the_parser_gives_up_on_is_malformed(tmp_path):
    numbers, brackets = read(write(tmp_path / "a.jsonl", f'{{"a": {"9" * 5000}}}\n{"[" * 100_000}\n'))
    assert numbers.problem.startswith("line 1, the JSON cannot be read: Exceeds the limit")
    assert brackets.problem.startswith("line 2, the JSON cannot be read: maximum recursion depth exceeded")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (gzip.compress(b"{}"), "gzip"),
        (b"PAR1....", "Parquet"),
        (b"ARROW1..", "Arrow"),
        (b"PK\x03\x04....", "a zip arch"),
    ],
)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.csv", "a.txt"])
def test_files_of_another_kind_than_their_name_says_are_refused_as_what_they_are(tmp_path, name, content, kind):
    (tmp_path / name).write_bytes(content)
    assert f"{name}: the file begins as {kind}" in message_of(tmp_path / name)


def test_a_record_that_does_not_end_is_named_by_its_first_line(tmp_path):
    path = write(tmp_path / "a.csv", 'a,b\n"one\ntwo",2\n"open,3\n4,5\n')
    found = message_of(path)
    assert "a.csv: line 5 is not valid CSV (row 2, in a record that begins at line 4): unexpected end of data" in found
    assert "inside quotes it is written twice" in found


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.csv", "a.txt", "a.jsonl.gz"])
def test_utf_16_is_refused_with_what_to_do(tmp_path, name, encoding):
    content = "instruction\n".encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert "the file is UTF-16, as Excel" in message_of(tmp_path / name)


def test_an_array_in_another_encoding_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes('[{"a": "é"}]'.encode("latin-1"))
    assert re.search(r"a.json: not UTF-8 text near row 1: .*0xe9\). Save it as UTF-8.", message_of(path))


def test_a_parquet_file_that_is_damaged_inside_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    content = bytearray(path.read_bytes())
    content[4:36] = b"\xff" * 32  # the header of the first page
    path.write_bytes(bytes(content))
    assert message_of(path).startswith(f"{path} cannot be read at row 1:")


def test_a_catalogue_beside_its_data_is_not_read_as_rows(tmp_path):
    write(tmp_path / "a.json", json.dumps(ROWS))
    write(tmp_path / "dataset_info.json", '{"toy": {"file_name": "."}}')
    assert values(tmp_path) == ROWS


def test_a_split_may_end_beyond_what_a_machine_counts(tmp_path):
    from dataclasses import replace

    path = write(tmp_path / "a.json", json.dumps(ROWS))
    spec = replace(spec_of("alpaca"), files=(path,), last_row=10**30)
    assert sum(len(chunk) for chunk in read_rows(spec)) == len(ROWS)
