import os
import signal
import time

import pytest
from transformers import TrainerControl, TrainerState

from tunesmith.training.callbacks.interruption import Interruption


@pytest.fixture
def hangup():
    """Sets what this process does on SIGHUP, and gives it back after the test."""
    before = signal.getsignal(signal.SIGHUP)
    yield lambda handler: signal.signal(signal.SIGHUP, handler)
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def interruption(hangup):
    """A callback that has taken over the signals of this process."""
    hangup(signal.SIG_DFL)
    callback = Interruption(agree=lambda asked: asked, repeat_after_seconds=0.0)
    callback.on_train_begin(None, TrainerState(), TrainerControl())
    yield callback
    callback.release()


def after_step(callback, step, max_steps=10):
    control = TrainerControl()
    callback.on_step_end(None, TrainerState(global_step=step, max_steps=max_steps), control)
    return control


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_stops_after_the_step(interruption, number):
    assert not after_step(interruption, 1).should_training_stop
    os.kill(os.getpid(), number)
    control = after_step(interruption, 2)
    assert (control.should_save, control.should_training_stop, interruption.step) == (True, True, 2)


def test_under_nohup_a_closed_terminal_stops_nothing(hangup):
    hangup(signal.SIG_IGN)
    callback = Interruption(agree=lambda asked: asked)
    callback.on_train_begin(None, TrainerState(), TrainerControl())
    try:
        os.kill(os.getpid(), signal.SIGHUP)
    finally:
        callback.release()
    assert not after_step(callback, 2).should_training_stop


@pytest.mark.parametrize(("by_torchrun", "stops"), [(True, True), (False, False)])
def test_a_process_stops_when_torchrun_is_gone(monkeypatch, by_torchrun, stops):
    """A shell that is gone is none of its business."""
    if by_torchrun:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    callback = Interruption(agree=lambda asked: asked)
    assert not after_step(callback, 1).should_training_stop
    monkeypatch.setattr(os, "getppid", lambda: 1)
    control = after_step(callback, 2)
    assert (control.should_save, control.should_training_stop) == (stops, stops)


def test_a_second_control_c_raises_at_once(interruption):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_the_same_control_c_twice_in_a_moment_counts_once():
    """A terminal sends one to each process, and torchrun passes its own on."""
    callback = Interruption(agree=lambda asked: asked, repeat_after_seconds=60.0)
    callback.on_train_begin(None, TrainerState(), TrainerControl())
    try:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        callback.release()
    assert after_step(callback, 2).should_training_stop


def test_a_run_that_is_done_anyway_is_not_interrupted(interruption):
    interruption.request()
    assert not after_step(interruption, 10).should_training_stop
    assert interruption.step is None
    assert interruption.is_asked_anywhere()


def test_processes_stop_together_when_one_is_asked():
    callback = Interruption(agree=lambda asked: True)
    assert after_step(callback, 4).should_training_stop


@pytest.mark.parametrize(("epoch", "saves"), [(1.0, True), (1.5, False)])
def test_a_stop_in_the_middle_of_an_epoch_is_not_its_end(epoch, saves):
    callback = Interruption(agree=lambda asked: asked)
    callback.request()
    after_step(callback, 2)
    control = TrainerControl(should_evaluate=True, should_save=True)
    callback.on_epoch_end(None, TrainerState(epoch=epoch), control)
    assert (control.should_evaluate, control.should_save) == (saves, saves)


def test_signals_go_back_to_whom_they_belonged():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    callback = Interruption(agree=lambda asked: asked)
    callback.on_train_begin(None, TrainerState(), TrainerControl())
    assert signal.getsignal(signal.SIGINT) != before[0]
    callback.release()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
