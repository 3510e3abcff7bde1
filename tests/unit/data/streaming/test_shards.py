import pytest

from tests.unit.data.streaming.files import KINDS, rows_of, text_spec, write_file
from tunesmith.data.streaming import shards as module
from tunesmith.data.streaming.cursors import read_shard
from tunesmith.data.streaming.shards import cut_shards, deal, find_unit, group_borders
from tunesmith.errors import DataError


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(module, "_LEAST_BYTES", 200)
    monkeypatch.setattr(module, "_MOST_BYTES", 900)


def texts_of(shards):
    return [row.values["text"] for shard in shards for row in read_shard(shard)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_processes", [1, 2, 3, 7])
def test_processes_read_every_row_exactly_once(tmp_path, kind, num_processes):
    rows = rows_of(50)
    first = write_file(tmp_path / f"a{kind}", rows[:33], kind=kind)
    second = write_file(tmp_path / f"b{kind}", rows[33:], kind=kind)
    shards = cut_shards(text_spec(first, second), 5, num_processes)
    parts = [texts_of(deal(shards, process, num_processes)) for process in range(num_processes)]
    assert sorted(text for part in parts for text in part) == sorted(row["text"].rstrip() for row in rows) or sorted(
        text for part in parts for text in part
    ) == sorted(row["text"] for row in rows)
    assert all(parts)
    assert {shard.file_number for shard in shards} == {5, 6}


@pytest.mark.parametrize("kind", [".jsonl", ".parquet", ".arrow"])
def test_large_files_are_cut_and_small_ones_shared(tmp_path, kind):
    large = cut_shards(text_spec(write_file(tmp_path / f"a{kind}", rows_of(60), kind=kind)), 0, 3)
    assert len(large) >= 3
    assert all(shard.num_shares == 1 for shard in large)
    small = cut_shards(text_spec(write_file(tmp_path / f"b{kind}", rows_of(2), kind=kind)), 0, 3)
    assert [(shard.share, shard.num_shares) for shard in small] == [(0, 3), (1, 3), (2, 3)]


def test_a_file_that_cannot_be_cut_is_shared(tmp_path):
    spec = text_spec(write_file(tmp_path / "a.csv", rows_of(60), kind=".csv"))
    assert [shard.num_shares for shard in cut_shards(spec, 0, 2)] == [2, 2]
    assert sum(shard.num_bytes for shard in cut_shards(spec, 0, 2)) == (tmp_path / "a.csv").stat().st_size


def test_the_parts_of_a_file_have_the_size_of_the_file(tmp_path):
    path = write_file(tmp_path / "a.jsonl", rows_of(60), kind=".jsonl")
    assert sum(shard.num_bytes for shard in cut_shards(text_spec(path), 0, 4)) == pytest.approx(path.stat().st_size)


@pytest.mark.parametrize(
    ("settings", "named"), [({"num_samples": 5}, "num_samples: 5"), ({"last_row": 9}, "a range of rows in split")]
)
def test_what_needs_counting_is_refused(tmp_path, settings, named):
    path = write_file(tmp_path / "a.jsonl", rows_of(3), kind=".jsonl")
    with pytest.raises(DataError, match=f"data set 'texts' has {named}, and with streaming nobody counts"):
        cut_shards(text_spec(path, **settings), 0, 1)


def test_a_damaged_columnar_file_is_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"a\.parquet: not a readable file"):
        cut_shards(text_spec(tmp_path / "a.parquet"), 0, 1)


def test_a_file_that_is_written_anew_is_looked_at_anew(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[{"text": "a"}]')
    assert find_unit(path) == "array"
    path.write_text('{"text": "a"}\n')
    assert find_unit(path) == "lines"
    path = write_file(tmp_path / "a.parquet", rows_of(8), kind=".parquet")
    assert group_borders(path) == (0, 4, 8)
    write_file(path, rows_of(13), kind=".parquet")
    assert group_borders(path) == (0, 4, 8, 12, 13)
