"""A process that is killed in the middle of writing a checkpoint, or loses its terminal, leaves what can be resumed."""

import multiprocessing
import os
import select
import signal
import sys
from pathlib import Path

import pytest

from tests.tiny.runs import tiny_run, write_dataset, write_model
from tests.tiny.training import tiny_trainer, uneven_rows
from tunesmith.training.resume import resolve_resume_point

_ROOT = Path(__file__).parents[3]


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


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("under_nohup", [False, True])
def test_a_closed_terminal_leaves_a_checkpoint_and_under_nohup_ends_nothing(tmp_path, under_nohup):
    """The terminal takes no words any more when it is gone; the run must not end by that."""
    import pty

    write_model(tmp_path / "model")
    write_dataset(tmp_path / "data", 48)
    config = tiny_run(tmp_path, max_steps=200, logging_steps=1, save_steps=1000, dataloader_num_workers=1)
    (tmp_path / "run.yaml").write_text(config.to_yaml(), encoding="utf-8")
    child, terminal = pty.fork()
    if child == 0:
        if under_nohup:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        path = os.pathsep.join([str(_ROOT), str(_ROOT / "src")])
        words = [sys.executable, "-m", "tunesmith.cli.main", "train", str(tmp_path / "run.yaml")]
        os.execve(sys.executable, words, {**os.environ, "PYTHONPATH": path})
    log = tmp_path / "out" / "trainer_log.jsonl"
    while not (log.exists() and log.stat().st_size):
        if select.select([terminal], [], [], 0.02)[0]:
            os.read(terminal, 4096)  # or the run would wait for somebody to read
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    point = resolve_resume_point(setting=True, output_dir=tmp_path / "out")
    assert code == (0 if under_nohup else 130)
    assert (point.manifest.step == 200) == under_nohup
    assert (tmp_path / "out" / "adapter_model.safetensors").exists() == under_nohup
