import json
from collections import Counter
from itertools import islice

import pytest

from tests.unit.data.streaming.files import rows_of, text_spec, write_file
from tunesmith.data.streaming.mixing import MixedReader, Mixing
from tunesmith.data.streaming.shards import cut_shards, deal


@pytest.fixture
def shards(tmp_path):
    """Three data sets of 40, 10 and 20 rows; the first in several files."""
    sizes = {"a": (10, 10, 20), "b": (10,), "c": (20,)}
    found = []
    for name, counts in sizes.items():
        files = [
            write_file(tmp_path / f"{name}{part}.jsonl", rows_of(count), kind=".jsonl")
            for part, count in enumerate(counts)
        ]
        found.append(cut_shards(text_spec(*files), len(found) * 10, 1))
    return found


def reader_of(shards, strategy="concat", probabilities=(), *, seed=0, is_shuffled=True):
    mixing = Mixing(strategy, probabilities)
    return MixedReader(shards, mixing, seed=seed, process=0, is_shuffled=is_shuffled)


def keys(rows):
    return [(row.set_number, row.shard.file_number, row.place) for row in rows]


def test_every_row_comes_once_per_epoch_and_sets_stand_between_each_other(shards):
    reader = reader_of(shards)
    first = keys(reader.rows())
    assert Counter(number for number, _, _ in first) == {0: 40, 1: 10, 2: 20}
    assert len(set(first)) == 70
    reader.start_epoch()
    second = keys(reader.rows())
    assert sorted(second) == sorted(first)
    assert second != first
    thirds = [Counter(number for number, _, _ in first[start : start + 35]) for start in (0, 35)]
    assert all(part[0] > part[2] > 0 and part[1] > 0 for part in thirds)


def test_the_order_is_that_of_the_seed_and_of_the_files_without_shuffling(shards):
    assert keys(reader_of(shards).rows()) == keys(reader_of(shards).rows()) != keys(reader_of(shards, seed=1).rows())
    rows = keys(reader_of(shards[:1], is_shuffled=False).rows())
    assert rows == sorted(rows)


def test_under_stops_with_the_first_set_that_ends(shards):
    numbers = [number for number, _, _ in keys(reader_of(shards, "interleave_under").rows())]
    assert numbers == [0, 1, 2] * 10 + [0]


@pytest.mark.parametrize("strategy", ["concat", "interleave_under", "interleave_over", "interleave_once"])
@pytest.mark.parametrize("probabilities", [(), (0.5, 0.3, 0.2)])
def test_an_epoch_that_has_ended_stays_so(shards, strategy, probabilities):
    reader = reader_of(shards, strategy, probabilities)
    assert len(list(reader.rows())) >= 20
    assert list(reader.rows()) == []
    other = reader_of(shards, strategy, probabilities)
    other.load(reader.state())
    assert list(other.rows()) == []


def test_over_repeats_sets_until_the_last_has_ended(shards):
    rows = keys(reader_of(shards, "interleave_over").rows())
    counts = Counter(number for number, _, _ in rows)
    assert counts[0] == 40
    assert counts[1] == counts[2] == 40
    assert len({row for row in rows if row[0] == 1}) == 10


def test_once_goes_on_with_the_sets_that_are_left(shards):
    rows = keys(reader_of(shards, "interleave_once").rows())
    assert len(rows) == len(set(rows)) == 70
    assert [number for number, _, _ in rows[:30]] == [0, 1, 2] * 10


def test_probabilities_decide_how_often_a_set_is_drawn(shards):
    reader = reader_of(shards, "interleave_over", (0.8, 0.1, 0.1))
    counts = Counter(row.set_number for row in islice(reader.rows(), 50))
    assert counts[0] > 30


@pytest.mark.parametrize("strategy", ["concat", "interleave_under", "interleave_over", "interleave_once"])
@pytest.mark.parametrize("probabilities", [(), (0.5, 0.3, 0.2)])
def test_reading_goes_on_behind_any_row(shards, strategy, probabilities):
    def read_epochs(reader, count):
        rows = []
        while len(rows) < count:
            rows.extend(islice(reader.rows(), count - len(rows)))
            if len(rows) < count:
                reader.start_epoch()
        return keys(rows)

    whole = read_epochs(reader_of(shards, strategy, probabilities), 200)
    for stop in (0, 1, 17, 45, 70, 111, 163):
        reader = reader_of(shards, strategy, probabilities)
        read_epochs(reader, stop)
        other = reader_of(shards, strategy, probabilities)
        other.load(reader.state())
        assert read_epochs(other, 200 - stop) == whole[stop:]


def test_progress_counts_epochs(shards):
    reader = reader_of(shards, "concat")
    assert reader.progress == 0
    list(islice(reader.rows(), 35))
    assert 0.3 < reader.progress < 0.7
    list(reader.rows())
    assert reader.progress == 1
    reader.start_epoch()
    assert reader.progress == 1


@pytest.mark.parametrize("probabilities", [(), (0.5, 0.5)])
def test_of_a_set_that_others_read_whole_nothing_is_awaited(tmp_path, probabilities):
    one = text_spec(write_file(tmp_path / "one.jsonl", rows_of(1), kind=".jsonl"))
    many = text_spec(write_file(tmp_path / "many.jsonl", rows_of(12), kind=".jsonl"))
    shards = [cut_shards(spec, number, 2) for number, spec in enumerate((many, one))]
    assert [shard.num_shares for shard in shards[1]] == [2, 2]  # a share for each of two processes, one without rows
    own = [deal(of_set, 1, 2) for of_set in shards]
    reader = reader_of(own, "interleave_over", probabilities)
    first = keys(islice(reader.rows(), 50))
    assert Counter(number for number, _, _ in first) == {0: 6}
    reader.start_epoch()
    second = reader.rows()
    taken = keys(islice(second, 2))
    other = reader_of(own, "interleave_over", probabilities)
    other.load(json.loads(json.dumps(reader.state())))
    rest = keys(islice(other.rows(), 50))
    assert keys(islice(second, 50)) == rest
    assert sorted(taken + rest) == sorted(first)
