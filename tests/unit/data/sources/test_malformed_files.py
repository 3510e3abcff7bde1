"""A corpus of damaged files: whatever is wrong, the message names the file and a row, and nothing else is raised."""

import bz2
import gzip
import json
import lzma
import random
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tests.unit.data.streaming.files import text_spec
from tunesmith.data.sources.rows import read_file
from tunesmith.data.streaming.cursors import read_shard
from tunesmith.data.streaming.shards import cut_shards
from tunesmith.errors import DataError

ROWS = [{"instruction": f"é {n}", "output": "x" * n, "tools": [{"name": "f", "n": n}]} for n in range(30)]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
ARRAY = json.dumps(ROWS, ensure_ascii=False, indent=1).encode()
TABLE = ("a,b\n" + "".join(f'{n},"é, {n}"\n' for n in range(30))).encode()


def columnar(kind):
    table, sink = pa.Table.from_pylist(ROWS), pa.BufferOutputStream()
    if kind == "parquet":
        pq.write_table(table, sink)
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue().to_pybytes()


WHOLE = {
    "rows.jsonl": LINES,
    "rows.json": ARRAY,
    "rows.csv": TABLE,
    "rows.txt": LINES,
    "rows.jsonl.gz": gzip.compress(LINES),
    "rows.json.bz2": bz2.compress(ARRAY),
    "rows.csv.xz": lzma.compress(TABLE),
    "rows.parquet": columnar("parquet"),
    "rows.arrow": columnar("arrow"),
}


def damaged(content, rng):
    """Cut bytes out, put others in, swap, repeat or end early."""
    content = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(content))
        match rng.randrange(5):
            case 0:
                del content[at : at + rng.randint(1, 40)]
            case 1:
                content[at:at] = rng.choice([b'"', b"{", b"]", b"\x00", b"\xff\xfe", b"\n", b",", b"\\ud83d", b"1e999"])
            case 2:
                content[at] ^= 1 << rng.randrange(8)
            case 3:
                content[at:at] = content[at : at + 50]
            case 4:
                del content[at:]
        if not content:
            break
    return bytes(content)


KINDS_OF_LINES = [
    b'{"a": 1}',
    '{"é": "🙂"}'.encode(),
    b"\xef\xbb\xbf{}",
    b"",
    b" \t",
    b"[1]",
    b"null",
    b'{"a": 1}{"a": 2}',
    b'{"a": "b',
    b"{'a': 1}",
    b'{"a": "\xff"}',
    b"\0\0",
]


def test_of_any_lines_each_that_is_not_blank_is_a_row_or_a_problem_in_files_and_in_streams(tmp_path):
    path = tmp_path / "rows.jsonl"

    @limits(max_examples=60, deadline=None)
    @given(st.lists(st.sampled_from(KINDS_OF_LINES), max_size=8), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
    def holds(lines, line_end, has_last_end):
        path.write_bytes(line_end.join([b'{"a": 0}', *lines]) + line_end * has_last_end)
        rows = list(read_file(path))
        assert len(rows) == 1 + sum(bool(line.strip()) for line in lines)
        assert all(row.values == {} or row.problem is None for row in rows)
        for num_readers in (1, 3):
            streamed = [row for shard in cut_shards(text_spec(path), 1, num_readers) for row in read_shard(shard)]
            kinds = [[(row.values, row.problem is None) for row in part] for part in (rows, streamed)]
            assert sorted(map(repr, kinds[0])) == sorted(map(repr, kinds[1]))

    holds()


@pytest.mark.parametrize("name", WHOLE)
def test_a_damaged_file_gives_rows_or_an_error_that_names_it(tmp_path, name):
    path, rng = tmp_path / name, random.Random(f"damage {name}")
    errors = []
    for _ in range(60):
        path.write_bytes(damaged(WHOLE[name], rng))
        try:
            errors += [f"{name} row {row.row}: {row.problem}" for row in read_file(path) if row.problem is not None]
        except DataError as error:
            errors.append(str(error))
    assert all(name in error for error in errors)
    if name.startswith(("rows.json", "rows.csv")):
        assert errors
        named = re.compile(r"row \d+|the column .* twice|no comma|one object|header|is UTF-16")
        assert [error for error in errors if not named.search(error)] == []


@pytest.mark.parametrize("name", WHOLE)
def test_a_damaged_file_of_a_stream_gives_rows_or_an_error_that_names_it(tmp_path, name):
    rng = random.Random(f"stream {name}")
    errors = []
    for number in range(40):
        path = tmp_path / f"{number}.{name}"
        path.write_bytes(damaged(WHOLE[name], rng))
        try:
            for shard in cut_shards(text_spec(path), 1, 2):
                errors += [f"{name} byte {row.place}: {row.problem}" for row in read_shard(shard) if row.problem]
        except DataError as error:
            errors.append(str(error))
    assert all(name in error for error in errors)
    named = re.compile(
        r"row \d+|line \d+|byte \d+|the column .* twice|no comma|one object|not a readable|header|is UTF-16"
    )
    assert [error for error in errors if not named.search(error)] == []
