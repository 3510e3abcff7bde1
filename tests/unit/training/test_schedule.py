import pytest

from tests.tiny.runs import tiny_settings
from tunesmith.config import load_config
from tunesmith.errors import DataError
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.schedule import Schedule, estimate_schedule


def estimate(tmp_path, num_rows, world=1, **settings):
    config = load_config(tiny_settings(tmp_path, **settings), purpose="read")
    return estimate_schedule(config, num_rows, Ranks(world_size=world, local_world_size=world))


def test_a_short_last_batch_is_a_step_too(tmp_path):
    # 10 rows by 4 are 3 micro-batches, by 2 accumulated 2 steps; 1.5 epochs of 2 steps are 3.
    found = estimate(tmp_path, 10, gradient_accumulation_steps=2, num_train_epochs=1.5)
    assert found == Schedule(rows_per_step=8, steps_per_epoch=2, total_steps=3, rows_left_out=0)


def test_processes_share_the_batches(tmp_path):
    assert estimate(tmp_path, 20, world=2) == Schedule(8, 3, 3, 0)  # 5 batches, 3 for the first and 2 for the second


def test_a_number_of_steps_overrules_epochs(tmp_path):
    assert estimate(tmp_path, 10, max_steps=77).total_steps == 77


@pytest.mark.parametrize(("world", "left_out"), [(1, 2), (2, 6)])
def test_rows_that_fill_no_batch_are_counted(tmp_path, world, left_out):
    assert estimate(tmp_path, 14, world=world, dataloader_drop_last=True).rows_left_out == left_out


def test_an_epoch_that_fills_no_batch_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"a batch takes 4 .*, and there are 3 to train on.* to 3 or less"):
        estimate(tmp_path, 3, dataloader_drop_last=True)
    with pytest.raises(DataError, match=r"4 \(per_device_train_batch_size\) on each of 2 processes.* to 2 or less"):
        estimate(tmp_path, 5, world=2, dataloader_drop_last=True)
