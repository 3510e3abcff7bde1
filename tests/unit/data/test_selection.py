import json
from dataclasses import replace

import pytest

from tunesmith.data.selection import count_uses, sample_counts, select_chunks
from tunesmith.data.sources import DatasetSpec


@pytest.fixture
def files(tmp_path):
    for name, values in (("a.jsonl", range(5)), ("b.jsonl", range(5, 8))):
        (tmp_path / name).write_text("".join(json.dumps({"text": str(value)}) + "\n" for value in values))
    return (tmp_path / "a.jsonl", tmp_path / "b.jsonl")


def selected(files, *, max_rows=None, num_samples=None, seed=0):
    spec = DatasetSpec(name="set", files=files, formatting="text", num_samples=num_samples, max_rows=max_rows)
    chunks = list(select_chunks(spec, 3, seed=seed))
    assert [chunk.first_row for chunk in chunks] == [3 * number for number in range(len(chunks))]
    assert all(len(chunk.rows) == 3 for chunk in chunks[:-1])
    return [row for chunk in chunks for row in chunk.rows]


def test_all_rows_come_in_the_order_of_the_files(files):
    assert [(row.file.name, row.row) for row in selected(files)][4:6] == [("a.jsonl", 4), ("b.jsonl", 0)]
    assert [row.values["text"] for row in selected(files)] == list("01234567")


@pytest.mark.parametrize("max_rows", [1, 3, 4, 8, 100])
def test_the_first_rows_are_taken_over_all_files(files, max_rows):
    assert [row.values["text"] for row in selected(files, max_rows=max_rows)] == list("01234567"[:max_rows])


def test_a_sample_is_random_in_the_order_of_the_files_and_capped(files):
    texts = [row.values["text"] for row in selected(files, num_samples=5, seed=1)]
    assert len(set(texts)) == 5
    assert texts == sorted(texts)
    assert texts != [row.values["text"] for row in selected(files, num_samples=5, seed=2)]
    capped = [row.values["text"] for row in selected(files, num_samples=5, max_rows=2, seed=1)]
    assert len(capped) == 2
    assert set(capped) <= set(texts)


def test_every_row_is_read_once_however_large_the_sample_and_its_uses_are_counted(files):
    assert [row.values["text"] for row in selected(files, num_samples=19)] == list("01234567")
    spec = DatasetSpec(name="set", files=files, num_samples=19)
    assert sorted(count_uses(spec, 8, seed=0).tolist()) == [2, 2, 2, 2, 2, 3, 3, 3]
    assert count_uses(replace(spec, max_rows=9), 8, seed=0).sum() == 9
    assert count_uses(replace(spec, max_rows=8), 8, seed=0) is None
    assert count_uses(replace(spec, num_samples=None), 8, seed=0) is None


def test_a_sample_larger_than_the_set_repeats_all_rows_evenly():
    counts = sample_counts(8, 19, seed=0)
    assert sorted(counts[row] for row in range(8)) == [2, 2, 2, 2, 2, 3, 3, 3]
    assert sample_counts(0, 5, seed=0).total() == 0
