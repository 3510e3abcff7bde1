import numpy as np
import pytest

from tunesmith.data.loading.samplers import build_sampler

LENGTHS = np.random.default_rng(1).integers(1, 500, 1003)
STRATEGIES = ("random", "sequential", "group_by_length")


def order(strategy, *, seed=0, epoch=0, batch_size=8):
    sampler = build_sampler(strategy, LENGTHS, batch_size=batch_size, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_row_comes_once_per_epoch(strategy):
    assert sorted(order(strategy, epoch=3)) == list(range(1003))
    assert len(build_sampler(strategy, LENGTHS, batch_size=8)) == 1003


@pytest.mark.parametrize("strategy", ["random", "group_by_length"])
def test_the_order_depends_on_seed_and_epoch_alone(strategy):
    assert order(strategy, seed=5, epoch=2) == order(strategy, seed=5, epoch=2)
    assert order(strategy, seed=5, epoch=2) != order(strategy, seed=5, epoch=1)
    assert order(strategy, seed=5, epoch=2) != order(strategy, seed=4, epoch=2)
    assert order(strategy, seed=1, epoch=2) != order(strategy, seed=2, epoch=1)


def test_sequential_is_the_order_of_the_rows_in_every_epoch():
    assert order("sequential", epoch=1, seed=3) == list(range(1003))


def padding(rows, batch_size):
    batches = [LENGTHS[rows[at : at + batch_size]] for at in range(0, len(rows), batch_size)]
    return sum(int(batch.max() * len(batch) - batch.sum()) for batch in batches) / LENGTHS.sum()


def test_rows_of_similar_length_share_batches():
    assert padding(order("random"), 8) > 0.5
    assert padding(order("group_by_length"), 8) < 0.05


def test_grouped_batches_do_not_come_in_order_of_length():
    rows = order("group_by_length")
    means = [LENGTHS[rows[at : at + 8]].mean() for at in range(0, 1000, 8)]
    assert abs(np.corrcoef(means[1:], np.arange(len(means) - 1))[0, 1]) < 0.3


def test_the_longest_row_is_in_the_first_batch():
    rows = order("group_by_length", epoch=4)
    whole = rows[: 1003 // 8 * 8]
    assert LENGTHS[whole].max() in LENGTHS[rows[:8]]


def test_fewer_rows_than_a_batch_are_all_given():
    assert sorted(build_sampler("group_by_length", [3, 1, 2], batch_size=8)) == [0, 1, 2]
    assert list(build_sampler("random", [], batch_size=8)) == []
