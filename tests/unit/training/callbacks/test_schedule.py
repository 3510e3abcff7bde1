"""The first step after resuming is taken at the rate of the schedule."""

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau
from transformers import TrainerControl, TrainerState, TrainingArguments

from tunesmith.training.callbacks.schedule import FollowSchedule


def begin(optimizer, scheduler, *, step, tmp_path):
    state = TrainerState(global_step=step)
    arguments = TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    FollowSchedule().on_train_begin(arguments, state, TrainerControl(), optimizer=optimizer, lr_scheduler=scheduler)


def sgd():
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.5)


def test_a_run_made_longer_goes_on_at_the_rate_of_its_new_schedule(tmp_path):
    optimizer = sgd()
    scheduler = LambdaLR(optimizer, lambda step: 1 - step / 10)
    scheduler.last_epoch = 4
    optimizer.param_groups[0]["lr"] = 0.0  # as a schedule of four steps left it
    begin(optimizer, scheduler, step=4, tmp_path=tmp_path)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * 0.6)
    assert scheduler.get_last_lr() == [pytest.approx(0.5 * 0.6)]


def test_a_run_that_begins_is_left_alone(tmp_path):
    optimizer = sgd()
    scheduler = LambdaLR(optimizer, lambda step: 0.5)
    optimizer.param_groups[0]["lr"] = 0.125
    begin(optimizer, scheduler, step=0, tmp_path=tmp_path)
    assert optimizer.param_groups[0]["lr"] == 0.125


def test_a_schedule_that_follows_measurements_keeps_what_was_restored(tmp_path):
    optimizer = sgd()
    scheduler = ReduceLROnPlateau(optimizer)
    optimizer.param_groups[0]["lr"] = 0.125
    begin(optimizer, scheduler, step=4, tmp_path=tmp_path)
    assert optimizer.param_groups[0]["lr"] == 0.125
