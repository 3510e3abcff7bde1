import pytest
import torch

from tests.tiny.runs import tiny_run
from tunesmith.errors import ConfigError
from tunesmith.training import room
from tunesmith.training.room import check_room_for_results, count_kept_checkpoints
from tunesmith.training.saved_sizes import saved_bytes, state_bytes, trained_bytes
from tunesmith.training.schedule import Schedule

SCHEDULE = Schedule(rows_per_step=4, steps_per_epoch=10, total_steps=25, rows_left_out=0)


@pytest.mark.parametrize(
    ("settings", "done", "count"),
    [
        ({"save_steps": 10}, 0, 3),  # 10, 20 and the last
        ({"save_steps": 10}, 20, 1),
        ({"save_steps": 0.2}, 0, 5),
        ({"save_strategy": "epoch"}, 0, 3),
        ({"save_strategy": "no"}, 0, 0),
        ({"save_steps": 5, "save_total_limit": 2}, 0, 3),  # the oldest goes when the new one is whole
        ({"save_steps": 10, "save_total_limit": 9}, 0, 3),
        ({"save_strategy": "best", "metric_for_best_model": "loss", "eval_strategy": "steps", "val_size": 2}, 0, 1),
    ],
)
def test_checkpoints_are_counted_that_stand_there_at_one_time(toy_place, settings, done, count):
    training = tiny_run(toy_place, **settings).training
    assert count_kept_checkpoints(training, SCHEDULE, done) == count


def test_weights_that_do_not_fit_are_refused_before_the_first_step(make_parts, monkeypatch):
    parts = make_parts()
    needed = saved_bytes(parts.loaded.model)
    assert needed == trained_bytes(parts.loaded.model) == 4 * parts.loaded.parameters.trainable
    monkeypatch.setattr(room, "free_bytes", lambda place: needed - 1)
    with pytest.raises(ConfigError, match=r"output_dir.*trained weights do not fit there: it takes about .* KiB, and"):
        check_room_for_results(parts)


def test_checkpoints_that_do_not_fit_are_warned_about(make_parts, monkeypatch, caplog):
    parts = make_parts(save_steps=2)  # 6 steps
    needed = saved_bytes(parts.loaded.model)
    monkeypatch.setattr(room, "free_bytes", lambda place: 10 * needed - 1)
    check_room_for_results(parts)
    assert "3 checkpoints of about" in caplog.text  # each of weights and twice as much of AdamW
    caplog.clear()
    monkeypatch.setattr(room, "free_bytes", lambda place: 10 * needed)
    check_room_for_results(parts)
    assert not caplog.text


def test_a_run_that_trains_nothing_needs_no_room(make_parts, monkeypatch):
    monkeypatch.setattr(room, "free_bytes", lambda place: 0)
    check_room_for_results(make_parts({"schedule": None}))


def test_the_size_of_a_whole_model_counts_what_is_frozen(make_parts):
    parts = make_parts(finetuning_type="freeze", freeze_trainable_layers=1, lora_rank=None)
    assert trained_bytes(parts.loaded.model) < saved_bytes(parts.loaded.model) == 4 * parts.loaded.parameters.total


def test_what_an_optimizer_keeps_is_counted():
    weight = torch.nn.Parameter(torch.ones(3, 4))
    optimizer = torch.optim.AdamW([weight])
    assert state_bytes(optimizer) == 0
    weight.sum().backward()
    optimizer.step()
    assert state_bytes(optimizer) == 4 * (12 + 12 + 1)  # two averages and the number of steps
