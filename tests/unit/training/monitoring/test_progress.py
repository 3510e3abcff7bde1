import io
import logging
import sys

import pytest
from transformers import TrainerControl, TrainerState

from tunesmith.training.monitoring.meter import RunMeter
from tunesmith.training.monitoring.progress import Progress

LOGS = {"loss": 2.5, "learning_rate": 1e-4, "grad_norm": 1.0, "tokens_per_second": 1234.0, "epoch": 0.5}


def run(progress, state, *logs):
    progress.on_train_begin(None, state, TrainerControl())
    for line in logs:
        state.global_step += 1
        progress.on_log(None, state, TrainerControl(), line)
        progress.on_step_end(None, state, TrainerControl())
    progress.on_train_end(None, state, TrainerControl())


@pytest.fixture(autouse=True)
def memory(monkeypatch):
    """Memory as if measured."""
    figures = {"memory_gb": 1.5, "peak_memory_gb": 2.25}
    monkeypatch.setattr("tunesmith.training.monitoring.progress.measure_memory", lambda: figures)
    return figures


def test_without_a_terminal_each_logging_step_is_a_line(caplog, capsys):
    state = TrainerState(max_steps=4, is_world_process_zero=True)
    with caplog.at_level(logging.INFO, logger="tunesmith"):
        run(Progress(RunMeter(), is_terminal=False), state, LOGS)
    numbers = "loss 2.5000  lr 1.00e-04  grad norm 1.00  1,234 tokens/s  1.50 GB (peak 2.25)  epoch 0.50"
    assert caplog.messages == [f"step 1/4 (25%)  {numbers}  0:00:00 gone, 0:00:00 left"]
    assert "\r" not in capsys.readouterr().err  # no bar; a handler that another test set up may write the line, too


def test_padding_and_the_accelerator_are_in_the_line_where_there_are_any(caplog, memory):
    memory |= {"device_memory_gb": 30.0, "device_peak_memory_gb": 41.5}
    state = TrainerState(max_steps=4, is_world_process_zero=True)
    with caplog.at_level(logging.INFO, logger="tunesmith"):
        run(Progress(RunMeter(), is_terminal=False), state, LOGS | {"padded_tokens_per_second": 2000.0})
    assert "  1,234 tokens/s (2,000 with padding)  30.00 GB (peak 41.50)  epoch 0.50" in caplog.text


def test_on_a_terminal_a_bar_shows_loss_and_speed(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    state = TrainerState(max_steps=4, is_world_process_zero=True)
    run(Progress(RunMeter(), is_terminal=True), state, LOGS, LOGS, LOGS, LOGS)
    assert "4/4" in screen.getvalue()
    assert "loss 2.5000, 1,234 tokens/s" in screen.getvalue()


def test_a_resumed_bar_starts_where_training_does(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    state = TrainerState(max_steps=4, global_step=3, is_world_process_zero=True)
    run(Progress(RunMeter(), is_terminal=True), state, LOGS)
    assert "0/4" not in screen.getvalue()
    assert "4/4" in screen.getvalue()


def test_evaluations_have_a_line(caplog):
    state = TrainerState(max_steps=4, is_world_process_zero=True)
    with caplog.at_level(logging.INFO, logger="tunesmith"):
        run(Progress(RunMeter(), is_terminal=False), state, {"eval_loss": 1.5, "eval_runtime": 3.0})
    assert caplog.messages == ["step 1: eval_loss 1.5000"]


def test_other_processes_are_silent(caplog):
    state = TrainerState(max_steps=4, is_world_process_zero=False)
    with caplog.at_level(logging.INFO, logger="tunesmith"):
        run(Progress(RunMeter(), is_terminal=True), state, LOGS)
    assert caplog.messages == []
