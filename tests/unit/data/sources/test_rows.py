import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.data.formats.specs import spec_of
from tunesmith.data.sources import read_rows
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
        ("a.jsonl", '{"a": 1}\n{"a": \n', r"a.jsonl: malformed rows. row 2: line 2, column 7 is not valid JSON"),
        ("a.jsonl", "[1]\n", "row 1: line 1: expected an object, found list"),
        ("a.json", '[{"a": 1}, 3]', "a.json: malformed rows. row 2: expected an object, found int"),
        ("a.json", '[{"a": 1},\n{"b"}]', "a.json: not valid JSON at line 2, column 5"),
        ("a.csv", "a,b\n1,2\n3\n", "row 2: line 3: expected 2 fields, found 1"),
        ("a.csv", 'a,b\n"1"x,2\n', "line 2 is not valid CSV"),
        ("a.parquet", "nonsense", "a.parquet: not a readable Parquet file"),
        ("a.arrow", "nonsense", "a.arrow: not a readable Arrow file"),
    ],
)
def test_malformed_rows_are_named_by_file_and_row(tmp_path, name, text, message):
    with pytest.raises(DataError, match=message):
        read(write(tmp_path / name, text))


def test_the_first_three_malformed_rows_are_named_together(tmp_path):
    path = write(tmp_path / "a.jsonl", "{}\n1\n2\n{}\n3\n4\n")
    with pytest.raises(DataError, match=r"row 2: .*; row 3: .*; row 5: [^;]*$"):
        read(path)


def test_text_that_is_not_utf_8_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_bytes('{"a": "é"}'.encode("latin-1"))
    with pytest.raises(DataError, match=r"a.jsonl: not UTF-8 text near row 1: .*0xe9"):
        read(tmp_path / "a.jsonl")


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
        ("a.jsonl", f'{{"a": {"9" * 5000}}}', "line 1: the JSON cannot be read: Exceeds the limit"),
        ("b.json", f'[{{"a": {"9" * 5000}}}]', "the JSON cannot be read: Exceeds the limit"),
        ("c.jsonl", '{"a":' * 100_000, "line 1: the JSON cannot be read: maximum recursion depth exceeded"),
        ("d.json", "[" * 100_000, "the JSON cannot be read: maximum recursion depth exceeded"),
        ("e.json", '{\n "data": [{"a": "b"}]\n}', "it begins with one object over several lines"),
        ("f.json", '{ \r\n "a": "b"}', "it begins with one object over several lines"),
        ("g.csv", "a,b,b\n1,2,3\n", "the column 'b' is there twice"),
        ("h.csv", "a;b\n1;2\n", "its first line has no comma, but ';'"),
    ],
)
def test_files_that_cannot_be_read_are_named_with_what_is_wrong(tmp_path, name, text, message):
    found = message_of(write(tmp_path / name, text))
    assert name in found
    assert message in found


def test_text_in_another_encoding_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(json.dumps(ROWS).encode("utf-16"))
    assert message_of(path).endswith("Save it as UTF-8.")


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
