import numpy as np
import pytest

from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.token_batches import TokenBatches, find_cuts, round_lengths


def ranks(rank, world):
    return Ranks(rank, rank, world, world)


LENGTHS = np.random.default_rng(3).integers(4, 400, 500)


def test_lengths_are_rounded_up_by_little():
    assert round_lengths(np.array([1, 8, 9, 64, 70, 130, 513])).tolist() == [8, 8, 16, 64, 72, 144, 576]
    lengths = np.arange(64, 5000)
    rounded = round_lengths(lengths)
    assert (rounded >= lengths).all()
    assert (rounded <= lengths * 1.125).all()


def test_cuts_by_hand():
    lengths = np.array([3, 3, 4, 9, 2])
    assert find_cuts(lengths, 7, is_padded=False) == [0, 2, 3, 4, 5]
    assert find_cuts(lengths, 8, is_padded=True) == [0, 2, 3, 4, 5]  # 3 x 4 is too much, 9 stands alone
    assert find_cuts(lengths, 100, is_padded=True) == [0, 5]
    assert find_cuts(np.array([], dtype=int), 8, is_padded=False) == [0]


@pytest.mark.parametrize("is_padded", [True, False])
def test_no_batch_is_over_budget_and_every_row_comes_once_in_every_epoch(is_padded):
    batches = TokenBatches(LENGTHS, 1000, is_padded=is_padded, seed=1)
    epochs = []
    for epoch in range(3):
        batches.set_epoch(epoch)
        made = list(batches)
        assert len(made) == len(batches) == batches.num_batches
        assert sorted(row for batch in made for row in batch) == list(range(500))
        for batch in made:
            lengths = LENGTHS[batch]
            assert (len(lengths) * lengths.max() if is_padded else lengths.sum()) <= 1000
        epochs.append(made)
    assert epochs[0] != epochs[1]
    assert {frozenset(batch) for batch in epochs[0]} != {frozenset(batch) for batch in epochs[1]}
    batches.set_epoch(1)
    assert list(batches) == epochs[1]


def test_most_of_the_budget_is_used():
    batches = TokenBatches(LENGTHS, 4000, is_padded=True)
    padded = sum(len(batch) * LENGTHS[batch].max() for batch in batches)
    assert LENGTHS.sum() / padded > 0.9
    assert padded / (4000 * len(batches)) > 0.85


def test_a_row_over_budget_stands_alone_and_the_largest_batch_comes_first():
    batches = list(TokenBatches([5, 900, 6, 7], 100))
    assert batches[0] == [1]
    assert sorted(batches[1]) == [0, 2, 3]


def test_rows_that_are_not_shuffled_keep_their_order():
    assert list(TokenBatches([3, 3, 4, 9, 2], 7, is_shuffled=False)) == [[0, 1], [2], [3], [4]]


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_the_batches_and_take_as_many_steps(world):
    shares = [list(TokenBatches(LENGTHS, 1000, ranks(rank, world), seed=5)) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    rows = [row for share in shares for batch in share for row in batch]
    assert sorted(row for row in rows if row >= 0) == list(range(500))
    whole = list(TokenBatches(LENGTHS, 1000, seed=5))
    dealt = [share[turn] for turn in range(len(shares[0])) for share in shares]
    assert dealt[: len(whole)] == whole
    assert all(batch[0] < 0 for batch in dealt[len(whole) :])
