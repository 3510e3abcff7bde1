"""Runs that are told to stop save what they have, and go on as if they had not been."""

import json
import os
import signal
import time

import pytest
import torch
from transformers import TrainerCallback

from tests.tiny.runs import tiny_run, write_place
from tests.tiny.training import weights
from tunesmith.training.run import run_training


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return write_place(tmp_path_factory.mktemp("run"))


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class InterruptAtTwo(TrainerCallback):
    """Sends this process what Ctrl-C sends, during the second step."""

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 1:
            os.kill(os.getpid(), signal.SIGINT)


class TerminateAtTwo(TrainerCallback):
    """Sends this process what a scheduler sends, during the second step."""

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 1:
            os.kill(os.getpid(), signal.SIGTERM)


INTERRUPTED = {"num_train_epochs": 1, "logging_steps": 1, "lora_dropout": 0.2}


@pytest.fixture(scope="module")
def uninterrupted(place, tmp_path_factory):
    return run_training(tiny_run(place, output_dir=str(tmp_path_factory.mktemp("whole")), **INTERRUPTED))


@pytest.mark.parametrize("callback", [InterruptAtTwo, TerminateAtTwo])
def test_an_interrupted_run_saves_draws_and_can_go_on(place, uninterrupted, tmp_path, caplog, callback):
    settings, whole = {**INTERRUPTED, "plot_loss": True}, uninterrupted
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    name = f"{callback.__module__}:{callback.__name__}"
    stopped = run_training(tiny_run(place, output_dir=str(tmp_path / "parts"), callbacks=name, **settings))
    assert stopped.is_interrupted
    assert "resume_from_checkpoint=true" in caplog.text
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    parts = tmp_path / "parts"
    assert (parts / "checkpoint-2").is_dir()
    assert (parts / "training_loss.png").is_file()
    assert not (parts / "adapter_model.safetensors").exists()
    resumed = run_training(tiny_run(place, output_dir=str(parts), resume_from_checkpoint=True, **settings))
    expected, found = weights(whole.trainer.model), weights(resumed.trainer.model)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    kept = ("current_steps", "loss", "lr", "grad_norm", "epoch", "total_tokens")
    logs = [
        [{key: line[key] for key in kept} for line in lines_of(run / "trainer_log.jsonl")]
        for run in (whole.output_dir, parts)
    ]
    assert logs[0] == logs[1]
    assert resumed.metrics["train_loss"] == whole.metrics["train_loss"]


class TerminateAtTheEnd(TrainerCallback):
    """Sends this process what a scheduler sends, after the last step."""

    def on_train_end(self, args, state, control, **kwargs):
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("evaluates", [True, False])
def test_told_to_stop_after_the_last_step_a_run_is_whole_and_begins_nothing_else(place, tmp_path, caplog, evaluates):
    settings = {"max_steps": 2, "do_train": True, "do_eval": evaluates, "val_size": 2, "output_dir": str(tmp_path)}
    stopped = run_training(tiny_run(place, callbacks=f"{__name__}:TerminateAtTheEnd", **settings))
    assert stopped.is_interrupted == evaluates
    assert ("evaluation and prediction are left out" in caplog.text) == evaluates
    assert (tmp_path / "adapter_model.safetensors").is_file()
    assert not (tmp_path / "eval_results.json").exists()
    if evaluates:
        resumed = run_training(tiny_run(place, resume_from_checkpoint=True, **settings))
        assert "eval_loss" in resumed.metrics
        assert resumed.state.global_step == 2


class InterruptTwice(TrainerCallback):
    """Presses Ctrl-C twice."""

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 1:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1.1)
            os.kill(os.getpid(), signal.SIGINT)


def test_a_second_interruption_stops_at_once_and_still_draws(place, tmp_path):
    name = f"{__name__}:InterruptTwice"
    config = tiny_run(place, output_dir=str(tmp_path), callbacks=name, logging_steps=1, plot_loss=True)
    with pytest.raises(KeyboardInterrupt):
        run_training(config)
    assert (tmp_path / "training_loss.png").is_file()
    assert not (tmp_path / "checkpoint-2").exists()
