from collections import Counter

import numpy as np
import pytest
from datasets import Dataset, interleave_datasets
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tunesmith.data import mixing
from tunesmith.data.mixing import SetShare, draw_rows, mix_sets
from tunesmith.errors import DataError

STOPPING = {"interleave_under": "first_exhausted", "interleave_over": "all_exhausted"}
LENGTHS = st.lists(st.integers(1, 12), min_size=2, max_size=4)


def drawn(lengths, strategy, probabilities=(), seed=0):
    sets, rows = draw_rows(lengths, strategy, probabilities, seed)
    return list(zip(sets.tolist(), rows.tolist(), strict=True))


def reference(lengths, strategy, probabilities=None, seed=0):
    """What the library `datasets` makes of it."""
    sets = [Dataset.from_dict({"row": [(n, row) for row in range(length)]}) for n, length in enumerate(lengths)]
    mixed = interleave_datasets(sets, probabilities, seed=seed, stopping_strategy=STOPPING[strategy])
    return [tuple(row) for row in mixed["row"]]


@pytest.mark.parametrize("strategy", STOPPING)
@pytest.mark.parametrize("lengths", [[3, 5], [4, 4, 4], [1, 7, 2], [6]])
@pytest.mark.parametrize("seed", [0, 7])
def test_draws_are_those_of_the_library_datasets(strategy, lengths, seed):
    assert drawn(lengths, strategy) == reference(lengths, strategy)
    shares = [1 / len(lengths)] * len(lengths) if len(lengths) != 2 else [0.3, 0.7]
    assert drawn(lengths, strategy, shares, seed) == reference(lengths, strategy, shares, seed)


def test_under_stops_when_one_is_used_up_and_over_when_all_are():
    assert drawn([2, 3], "interleave_under") == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert drawn([2, 3], "interleave_over") == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0), (1, 2)]
    assert drawn([2, 3], "interleave_once") == [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2)]
    assert drawn([2, 1], "concat") == [(0, 0), (0, 1), (1, 0)]


@limits(max_examples=60, deadline=None)
@given(LENGTHS, st.booleans(), st.integers(0, 9))
def test_once_has_every_row_once_and_each_set_in_its_order(lengths, has_probabilities, seed):
    shares = np.arange(1, len(lengths) + 1) if has_probabilities else ()
    rows = drawn(lengths, "interleave_once", shares, seed)
    assert len(rows) == len(set(rows)) == sum(lengths)
    for number, length in enumerate(lengths):
        assert [row for own, row in rows if own == number] == list(range(length))


@limits(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(0, 9))
def test_repeats_come_only_after_all_rows_of_their_set_came(lengths, seed):
    counts = Counter(drawn(lengths, "interleave_over", np.ones(len(lengths)) / len(lengths), seed))
    assert len(counts) == sum(lengths)
    for number, length in enumerate(lengths):
        uses = [counts[number, row] for row in range(length)]
        assert max(uses) - min(uses) <= 1
        assert uses == sorted(uses, reverse=True)


def test_probabilities_are_kept_and_the_seed_decides():
    sets, _ = draw_rows([100_000, 100_000], "interleave_under", [0.2, 0.8], seed=1)
    assert abs(np.mean(sets) - 0.8) < 0.01
    assert drawn([50, 50], "interleave_once", [0.2, 0.8], 1) == drawn([50, 50], "interleave_once", [0.2, 0.8], 1)
    assert drawn([50, 50], "interleave_once", [0.2, 0.8], 1) != drawn([50, 50], "interleave_once", [0.2, 0.8], 2)


# Set a has the rows 0, 1 and 4 (of two examples), set b the rows 10 and 11 (the latter of three examples).
ROW_IDS = np.array([0, 1, 4, 4, 10, 11, 11, 11])
SETS = np.array([0, 0, 0, 0, 1, 1, 1, 1])


def test_a_row_is_drawn_with_all_its_examples():
    mixture = mix_sets(["a", "b"], SETS, ROW_IDS, [None, None], strategy="interleave_over")
    assert mixture.indices.tolist() == [0, 4, 1, 5, 6, 7, 2, 3, 4]
    assert mixture.shares == (SetShare("a", 3, 3, 0), SetShare("b", 2, 2, 1))


def test_what_is_not_drawn_is_available_and_not_used():
    mixture = mix_sets(["a", "b"], SETS, ROW_IDS, [None, None], strategy="interleave_under")
    assert mixture.indices.tolist() == [0, 4, 1, 5, 6, 7]
    assert mixture.shares == (SetShare("a", 3, 2, 0), SetShare("b", 2, 2, 0))


def test_rows_are_taken_as_often_as_is_asked_and_none_again_before_all_came():
    mixture = mix_sets(["a", "b"], SETS, ROW_IDS, [np.array([1, 3, 1]), None])
    assert mixture.indices.tolist() == [0, 1, 2, 3, 1, 1, 4, 5, 6, 7]
    assert mixture.shares[0] == SetShare("a", 3, 3, 2)


def test_a_data_set_that_is_hardly_ever_drawn_is_refused_instead_of_filling_the_memory(monkeypatch):
    monkeypatch.setattr(mixing, "available_memory_bytes", lambda: 10_000)
    taken = {"strategy": "interleave_over", "probabilities": (0.02, 0.98)}
    assert len(mix_sets(["a", "b"], SETS, ROW_IDS, [None, None], **taken).indices) > 100  # 3 / 0.02 draws
    with pytest.raises(DataError) as caught:
        mix_sets(["a", "b"], SETS, ROW_IDS, [None, None], **{**taken, "probabilities": (1e-9, 1 - 1e-9)})
    assert "with the probability 1e-09 it takes about 3,000,000,000 rows" in str(caught.value)
    assert "until all 3 rows of data set 'a' have come" in str(caught.value)
    for strategy, count in (("interleave_under", 4), ("interleave_once", 8)):  # these do not wait for it
        rare = {"strategy": strategy, "probabilities": (1e-9, 1 - 1e-9)}
        assert len(mix_sets(["a", "b"], SETS, ROW_IDS, [None, None], **rare).indices) == count


def test_a_data_set_without_rows_cannot_be_interleaved():
    with pytest.raises(DataError, match="interleave_over, and data set 'b' has no row left to draw"):
        mix_sets(["a", "b"], SETS[:4], ROW_IDS[:4], [None, None], strategy="interleave_over")
    assert mix_sets(["a", "b"], SETS[:4], ROW_IDS[:4], [None, None]).shares[1] == SetShare("b", 0, 0, 0)
