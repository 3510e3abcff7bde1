import pytest
import torch

from tests.tiny.runs import tiny_run
from tunesmith.config.training import TrainingConfig
from tunesmith.errors import TrainingError
from tunesmith.training.io import batch_size
from tunesmith.training.io.batch_size import begin_small, divisors, find_largest
from tunesmith.training.run import run_training, settle_parts


def test_the_last_size_before_the_first_that_does_not_fit_is_taken():
    asked = []

    def fits(size):
        asked.append(size)
        return size <= 6

    assert find_largest(divisors(12), fits) == 6
    assert asked == [1, 2, 3, 4, 6, 12]
    assert find_largest([1, 2], lambda size: False) == 0


def test_steps_keep_their_rows(toy_place):
    config = begin_small(tiny_run(toy_place, per_device_train_batch_size="auto", gradient_accumulation_steps=3))
    assert (config.training.batch_size, config.training.gradient_accumulation_steps) == (1, 24)
    fixed = tiny_run(toy_place, per_device_train_batch_size=5)
    assert begin_small(fixed) is fixed
    by_tokens = tiny_run(toy_place, per_device_train_batch_size="auto", tokens_per_device_batch=64)
    assert begin_small(by_tokens).training.batch_size == 8


def test_steps_of_micro_batches_by_tokens_keep_their_number(make_parts):
    parts = make_parts(tokens_per_device_batch=64, gradient_accumulation_steps=4)
    assert settle_parts(parts, TrainingConfig(per_device_train_batch_size="auto"), None) is parts


def test_a_size_for_which_a_cpu_has_no_memory_does_not_fit(make_parts, monkeypatch):
    def lack(parts, batch):
        raise RuntimeError("std::bad_alloc")

    monkeypatch.setattr(batch_size, "_try_step", lack)
    assert not batch_size._fits(make_parts(), 1)


def test_a_size_that_is_not_known_yet_is_no_number(toy_place):
    with pytest.raises(ValueError, match="not been found out"):
        assert tiny_run(toy_place, per_device_train_batch_size="auto").training.batch_size


def run(place, folder, **settings):
    return run_training(tiny_run(place, output_dir=str(folder), **settings))


@pytest.fixture(scope="module")
def fixed(toy_place, tmp_path_factory):
    """A run whose batch size was set."""
    return run(toy_place, tmp_path_factory.mktemp("fixed"), per_device_train_batch_size=8)


def test_a_run_finds_its_batch_size_and_learns_the_same(toy_place, fixed, tmp_path, caplog):
    caplog.set_level("INFO")
    found = run(toy_place, tmp_path / "auto", per_device_train_batch_size="auto")
    assert found.trainer.args.per_device_train_batch_size == 8
    assert "Batch size: 8 rows at once, 1 times a step" in caplog.text
    assert found.metrics["train_loss"] == fixed.metrics["train_loss"]


def test_what_does_not_fit_is_accumulated(toy_place, fixed, tmp_path, monkeypatch):
    right = batch_size._try_step

    def try_step(parts, batch):
        if batch["input_ids"].numel() > 200:
            monkeypatch.setattr(batch_size, "available_memory_bytes", lambda: 0)
        right(parts, batch)

    monkeypatch.setattr(batch_size, "_try_step", try_step)
    found = run(toy_place, tmp_path / "auto", per_device_train_batch_size="auto")
    size = found.trainer.args.per_device_train_batch_size
    assert size < 8
    assert size * found.trainer.args.gradient_accumulation_steps == 8
    assert found.state.global_step == fixed.state.global_step
    assert found.metrics["train_loss"] == pytest.approx(fixed.metrics["train_loss"], rel=1e-4)


def test_a_row_that_does_not_fit_is_told(toy_place, tmp_path, monkeypatch):
    monkeypatch.setattr(batch_size, "_fits", lambda parts, size: False)
    with pytest.raises(TrainingError, match="Not even one row"):
        run(toy_place, tmp_path, per_device_train_batch_size="auto")


def test_a_resumed_run_keeps_the_size_that_was_found(toy_place, tmp_path, monkeypatch):
    settings = {"per_device_train_batch_size": "auto", "save_strategy": "steps", "save_steps": 1}
    run(toy_place, tmp_path, **settings, max_steps=1)
    monkeypatch.setattr(batch_size, "_fits", lambda parts, size: size <= 1)
    again = run(toy_place, tmp_path, **settings, max_steps=2, resume_from_checkpoint=True)
    assert again.trainer.args.per_device_train_batch_size == 8


def test_processes_take_the_smallest_size_of_all(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(
        torch.distributed, "all_gather_object", lambda found, own: found.__setitem__(slice(None), [own, 4])
    )
    assert batch_size._agree(8) == 4
