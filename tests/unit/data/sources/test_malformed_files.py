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


@pytest.mark.parametrize("name", WHOLE)
def test_a_damaged_file_gives_rows_or_an_error_that_names_it(tmp_path, name):
    path, rng = tmp_path / name, random.Random(f"damage {name}")
    errors = []
    for _ in range(60):
        path.write_bytes(damaged(WHOLE[name], rng))
        try:
            assert all(isinstance(row.values, dict) for row in read_file(path))
        except DataError as error:
            errors.append(str(error))
    assert all(name in error for error in errors)
    if name.startswith(("rows.json", "rows.csv")):
        assert errors
        named = re.compile(r"row \d+|the column .* twice|no comma|one object")
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
                assert all(isinstance(row.values, dict) for row in read_shard(shard))
        except DataError as error:
            errors.append(str(error))
    assert all(name in error for error in errors)
    named = re.compile(r"row \d+|line \d+|byte \d+|the column .* twice|no comma|one object|not a readable")
    assert [error for error in errors if not named.search(error)] == []
