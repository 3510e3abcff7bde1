"""A process that is killed in the middle of writing a checkpoint leaves a folder that can be resumed."""

import multiprocessing
import os
import signal

import pytest

from tests.tiny.training import tiny_trainer, uneven_rows
from tunesmith.training.resume import resolve_resume_point


def build_trainer(folder):
    return tiny_trainer(folder, uneven_rows(16), save_strategy="steps", save_steps=2)


def train_and_die(folder):
    """Train with a checkpoint every two steps, and die while the one of step 4 is being written."""
    trainer = build_trainer(folder)
    right = trainer._save_optimizer_and_scheduler

    def die(output_dir):
        right(output_dir)
        if trainer.state.global_step == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    trainer._save_optimizer_and_scheduler = die
    trainer.train()


@pytest.mark.processes
def test_a_kill_while_saving_leaves_the_last_whole_checkpoint(tmp_path):
    # A copy of this process: a new one would import everything again, which takes longer than the training.
    process = multiprocessing.get_context("fork").Process(target=train_and_die, args=(tmp_path,))
    process.start()
    process.join(timeout=120)
    assert process.exitcode == -signal.SIGKILL
    assert (tmp_path / ".checkpoint-4.incomplete").is_dir()
    point = resolve_resume_point(setting=True, output_dir=tmp_path)
    assert point.manifest.step == 2

    trainer = build_trainer(tmp_path)
    trainer.restore(point)
    trainer.train(resume_from_checkpoint=str(point.path))
    assert trainer.state.global_step == 8
    assert not (tmp_path / ".checkpoint-4.incomplete").exists()
    assert (tmp_path / "checkpoint-4").is_dir()
