import pytest
from transformers import TrainerCallback

from tests.tiny.training import tiny_trainer, uneven_rows
from tunesmith.training.callbacks.interruption import Interruption
from tunesmith.training.callbacks.last_line import LastLine
from tunesmith.training.monitoring.log import LOG_FILE, LogFile, read_log


class StopAt(TrainerCallback):
    """Ends training after a step, as early stopping does."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            control.should_training_stop = True


class InterruptAt(TrainerCallback):
    def __init__(self, interruption, step):
        self.interruption, self.step = interruption, step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            self.interruption.request()


def logged(folder, *, stop=None, interrupt=None, **settings):
    """Lines of a run of five steps. Each is (step, loss)."""
    trainer = tiny_trainer(folder, uneven_rows(10), **settings)
    interruption = Interruption(agree=lambda asked: asked)
    callbacks = [LogFile(folder / LOG_FILE, trainer.meter)]
    callbacks += [StopAt(stop)] if stop else []
    callbacks += [InterruptAt(interruption, interrupt)] if interrupt else []
    for callback in [*callbacks, LastLine(interruption), interruption]:
        trainer.add_callback(callback)
    trainer.train()
    interruption.release()
    return [(line["current_steps"], line["loss"]) for line in read_log(folder / LOG_FILE)]


@pytest.fixture(scope="module")
def losses(tmp_path_factory):
    """Loss of each step."""
    return [loss for _, loss in logged(tmp_path_factory.mktemp("each"), logging_steps=1)]


def test_fewer_steps_than_logging_steps_give_one_line(tmp_path, losses):
    assert logged(tmp_path, logging_steps=100) == [(5, pytest.approx(sum(losses) / 5))]


def test_steps_after_the_last_line_give_one_more(tmp_path, losses):
    found = logged(tmp_path, logging_steps=2)
    assert [step for step, _ in found] == [2, 4, 5]
    assert found[-1][1] == pytest.approx(losses[4])


def test_no_step_is_logged_twice(tmp_path, losses):
    assert [step for step, _ in logged(tmp_path, logging_steps=5)] == [5]


def test_a_run_that_is_stopped_early_logs_its_last_steps(tmp_path, losses):
    assert logged(tmp_path, logging_steps=2, stop=3)[-1] == (3, pytest.approx(losses[2]))


def test_an_interrupted_run_leaves_the_line_to_the_resumed_one(tmp_path):
    assert [step for step, _ in logged(tmp_path, logging_steps=2, interrupt=3)] == [2]
