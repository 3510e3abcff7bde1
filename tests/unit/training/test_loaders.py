import numpy as np
import pytest

from tests.unit.data.stored import stored_rows
from tests.unit.training.io.sources import Rows, ids_of, refuse
from tunesmith.data.batches import Example
from tunesmith.data.loading.datasets import ChunkViews, ExampleDataset, Part
from tunesmith.data.loading.samplers import RandomSampler, SequentialSampler
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.failures import FeedError
from tunesmith.training.io.settings import LoaderPolicy
from tunesmith.training.loaders import ProcessBatches, SilencedFillers, UpToTrouble, build_loader


def batches_of(rank, world, *, num_rows=5, batch_size=2, drop_last=False):
    ranks = Ranks(rank=rank, local_rank=rank, world_size=world, local_world_size=world)
    return ProcessBatches(SequentialSampler(num_rows), batch_size, ranks, drop_last=drop_last)


def test_micro_batches_are_dealt_out_in_turn_and_gaps_are_filled():
    assert list(batches_of(0, 2)) == [[0, 1], [4]]
    assert list(batches_of(1, 2)) == [[2, 3], [-1]]  # -1 is row 0 without labels


@pytest.mark.parametrize("num_rows", [1, 2, 3, 7, 8, 9, 16])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_row_comes_once_whatever_the_number_of_processes(num_rows, world):
    shares = [list(batches_of(rank, world, num_rows=num_rows)) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    assert [len(share) for share in shares] == [len(batches_of(0, world, num_rows=num_rows))] * world
    rows = [row for share in shares for batch in share for row in batch if row >= 0]
    assert sorted(rows) == list(range(num_rows))


def test_dropping_the_last_leaves_out_what_does_not_fill_a_round():
    assert list(batches_of(0, 2, num_rows=7, drop_last=True)) == [[0, 1]]
    assert list(batches_of(1, 2, num_rows=7, drop_last=True)) == [[2, 3]]


def test_steps_of_one_and_two_processes_hold_the_same_rows():
    whole = list(batches_of(0, 1, num_rows=16, batch_size=4))
    halves = [list(batches_of(rank, 2, num_rows=16, batch_size=2)) for rank in range(2)]
    assert [first + second for first, second in zip(*halves, strict=True)] == whole


def toy_rows():
    ids = np.array([5, 6, 7], dtype=np.int32)
    return [Example(input_ids=ids + n, trained_spans=np.array([1, 3], dtype=np.int32), row_id=n) for n in range(3)]


def test_a_filler_is_the_row_without_labels():
    rows = SilencedFillers(toy_rows())
    assert rows[2]["trained_spans"].tolist() == [1, 3]
    filler = rows[-3]
    assert filler["row_id"] == 2
    assert filler["input_ids"].tolist() == [7, 8, 9]
    assert filler["trained_spans"].tolist() == []


def test_a_filler_of_a_pack_has_no_labels_in_any_sample():
    filler = SilencedFillers([toy_rows()])[-1]
    assert [sample["trained_spans"].size for sample in filler] == [0, 0, 0]


def test_the_epoch_reaches_the_sampler():
    sampler = RandomSampler(12, seed=1)
    rows = [Example(input_ids=np.array([n]), trained_spans=np.array([]), row_id=n) for n in range(12)]
    loader = build_loader(rows, lambda batch: [row["row_id"] for row in batch], ProcessBatches(sampler, 3, Ranks()))
    orders = []
    for epoch in (0, 1, 0):
        loader.set_epoch(epoch)
        orders.append(list(loader))
    assert orders[0] == orders[2] != orders[1]


def test_starting_a_loader_draws_nothing_from_the_random_state_of_training():
    import torch

    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    loader = build_loader(toy_rows(), list, ProcessBatches(SequentialSampler(3), 1, Ranks()))
    list(loader)
    assert torch.equal(torch.rand(1), expected)


def test_rows_are_fetched_at_once_where_the_data_set_can(tmp_path, monkeypatch):
    stored = stored_rows(tmp_path / "a.arrow", [[(0, [5, 6, 7], [(1, 3)]), (1, [8, 9], [(1, 2)]), (2, [4], [])]])
    dataset = ExampleDataset([Part(stored, 0)])
    asked = []
    at_once = ExampleDataset.__getitems__
    monkeypatch.setattr(ExampleDataset, "__getitems__", lambda own, rows: asked.append(rows) or at_once(own, rows))
    loader = build_loader(dataset, ids_of, ProcessBatches(SequentialSampler(3), 2, Ranks()))
    assert list(loader) == [[0, 1], [2]]
    assert asked == [[0, 1], [2]]
    silenced = SilencedFillers(dataset)
    assert [row["trained_spans"].tolist() for row in silenced.__getitems__([0, -1])] == [[1, 3], []]


def test_a_row_that_fails_among_others_is_named(tmp_path, monkeypatch):
    stored = stored_rows(tmp_path / "a.arrow", [[(row, [5, 6], [(1, 2)]) for row in range(4)]])
    example = ChunkViews.example
    monkeypatch.setattr(ChunkViews, "example", lambda own, at: refuse() if at == 2 else example(own, at))
    batches = ProcessBatches(SequentialSampler(4), 4, Ranks())
    loader = build_loader(ExampleDataset([Part(stored, 0)]), ids_of, batches, policy=LoaderPolicy(max_restarts=0))
    with pytest.raises(FeedError, match="failed at row 2 with ValueError"):
        list(loader)


@pytest.mark.parametrize("broken", [(), (5,)])
def test_all_processes_hear_how_the_batches_ended(broken):
    told = []
    rows = Rows(num_rows=8, trouble=dict.fromkeys(broken, refuse))
    loader = build_loader(
        rows, ids_of, ProcessBatches(SequentialSampler(8), 2, Ranks()), policy=LoaderPolicy(max_restarts=0)
    )
    assert list(UpToTrouble(loader, told.append)) == [[0, 1], [2, 3], [4, 5], [6, 7]][: 2 if broken else 4]
    (failure,) = told
    assert ("failed at row 5" in str(failure)) if broken else failure is None
