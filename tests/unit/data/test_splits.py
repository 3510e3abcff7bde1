import numpy as np
import pytest

from tunesmith.data.splits import hold_back
from tunesmith.errors import DataError


def test_all_examples_of_a_source_row_are_on_one_side():
    row_ids = np.repeat(np.arange(50), 3)
    train, held_back = hold_back(row_ids, 0.2, seed=4)
    assert sorted([*train, *held_back]) == list(range(150))
    assert not set(row_ids[train]) & set(row_ids[held_back])
    assert len(set(row_ids[held_back])) == 10


def test_at_least_one_row_is_left_to_train_on():
    train, held_back = hold_back(np.array([3, 8]), 1, seed=0)
    assert (len(train), len(held_back)) == (1, 1)
    with pytest.raises(DataError, match="val_size is 2, but there are only 2 usable rows"):
        hold_back(np.array([3, 8]), 2, seed=0)
    with pytest.raises(DataError, match=r"val_size is 0.5, but there is only 1 usable row, and"):
        hold_back(np.array([3]), 0.5, seed=0)
