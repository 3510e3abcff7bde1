from collections import Counter

import numpy as np
import pytest

from tests.unit.data.streaming.files import rows_of, text_spec, write_file
from tests.unit.data.streaming.sources import items_of, text_source
from tunesmith.data.batches import Example
from tunesmith.data.streaming.windows import pack_cut, pack_whole
from tunesmith.errors import DataError


def examples_of(*lengths):
    return [
        Example(
            input_ids=np.arange(length, dtype=np.int32) + 100 * row,
            trained_spans=np.array([0, length], dtype=np.int32),
            row_id=row,
        )
        for row, length in enumerate(lengths)
    ]


@pytest.fixture
def spec(tmp_path):
    files = [write_file(tmp_path / f"{name}.jsonl", rows_of(25), kind=".jsonl") for name in "ab"]
    return text_spec(*files)


def tokens_of(items):
    return Counter(token for item in items for _, ids, _ in item for token in ids)


def test_whole_rows_are_packed_and_the_emptiest_pack_waits_for_more():
    packs, rest = pack_whole(examples_of(6, 5, 4, 9, 3), 10)
    assert [[example["row_id"] for example in pack] for pack in packs] == [[0, 2], [3]]
    assert [example["row_id"] for example in rest] == [1, 4]
    assert pack_whole(examples_of(10, 9), 10)[1] == []
    assert pack_whole([], 10) == ([], [])


def test_documents_are_cut_to_full_blocks_and_the_remainder_waits():
    blocks, rest = pack_cut(examples_of(7, 6), 4)
    assert [[(piece["row_id"], len(piece["input_ids"])) for piece in block] for block in blocks] == [
        [(0, 4)],
        [(0, 3), (1, 1)],
        [(1, 4)],
    ]
    assert [(piece["row_id"], piece["input_ids"].tolist()) for piece in rest] == [(1, [105])]
    assert pack_cut(examples_of(4, 4), 4)[1] == []
    assert pack_cut([], 4) == ([], [])


@pytest.mark.parametrize("packing", ["none", "whole", "cut"])
def test_a_stream_goes_on_with_the_very_next_item(spec, packing):
    source = text_source(spec, packing=packing)
    whole = items_of(source.open(0, 1), 150)
    for stop in (0, 1, 3, 4, 10, 11, 49, 50, 51, 77, 120):
        stream = source.open(0, 1)
        items_of(stream, stop)
        other = source.open(0, 1)
        other.load(stream.state())
        assert items_of(other, 150 - stop) == whole[stop:]


def test_every_row_comes_once_per_epoch_in_another_order(spec):
    source = text_source(spec, epochs=2)
    items = items_of(source.open(0, 1))
    first, second = items[:50], items[50:]
    assert len(second) == 50
    assert sorted(first) == sorted(second)
    assert first != second
    assert len({row_id for item in first for row_id, _, _ in item}) == 50


@pytest.mark.parametrize("packing", ["whole", "cut"])
def test_packing_on_the_way_keeps_every_token(spec, packing):
    plain = items_of(text_source(spec, epochs=1, capacity=500).open(0, 1))
    packed = items_of(text_source(spec, packing=packing, epochs=1, capacity=500).open(0, 1))
    assert tokens_of(packed) == tokens_of(plain)
    sizes = [sum(len(ids) for _, ids, _ in item) for item in packed]
    assert max(sizes) <= 500
    assert sum(sizes) / (len(sizes) * 500) > (0.8 if packing == "whole" else 0.95)


def test_processes_have_disjoint_rows_that_make_the_whole(spec):
    source = text_source(spec, epochs=1)
    parts = [items_of(source.open(process, 3)) for process in range(3)]
    assert sorted(item for part in parts for item in part) == sorted(items_of(source.open(0, 1)))
    assert all(len(part) > 10 for part in parts)


def test_without_shuffling_rows_come_as_they_stand(spec):
    items = items_of(text_source(spec, is_shuffled=False, epochs=1).open(0, 1))
    ids = [row_id for item in items for row_id, _, _ in item]
    assert ids == sorted(ids)


def test_what_became_of_the_rows_is_counted_once_also_after_going_on(tmp_path):
    rows = [*rows_of(20), {"text": None}, {"other": "x"}]
    source = text_source(text_spec(write_file(tmp_path / "a.jsonl", rows, kind=".jsonl")), epochs=1)
    stream = source.open(0, 1)
    items_of(stream, 7)
    other = source.open(0, 1)
    other.load(stream.state())
    items_of(other)
    (tally,) = other.tallies
    assert (tally["read"], tally["used"], sum(tally["dropped"].values())) == (22, 20, 2)
    assert all("a.jsonl byte " in shown for rows in tally["shown"].values() for shown in rows)


def test_a_set_of_which_no_row_can_be_used_is_an_error_with_the_reasons(tmp_path):
    path = write_file(tmp_path / "a.jsonl", [{"other": "x"}] * 30, kind=".jsonl")
    with pytest.raises(
        DataError, match=r"Not one row of the data sets can be used:\n  column is missing: 30 \(a.jsonl byte 15: column"
    ):
        text_source(text_spec(path)).open(0, 1).next_item()


def test_a_set_without_rows_is_an_error(tmp_path):
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(DataError, match="The data sets have no rows"):
        text_source(text_spec(tmp_path / "a.jsonl")).open(0, 1).next_item()


def test_a_row_is_described_by_its_line(spec):
    source = text_source(spec, text_spec(spec.files[0], name="again"))
    item = source.open(0, 1).next_item()
    description = source.describe_row(item["row_id"])
    line = int(description.rpartition(" ")[2])
    name = description.split(",")[0].removeprefix("data set ")
    path = next(path for number, path in enumerate(spec.files) if str(path) in description)
    assert name in ("texts", "again")
    assert path.read_text().splitlines()[line - 1]
    for wrong in (-1, 5, 99 << 44):
        with pytest.raises(KeyError):
            source.describe_row(wrong)
