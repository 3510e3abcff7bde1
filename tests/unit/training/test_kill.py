"""A process that is killed in the middle of writing a checkpoint leaves a folder that can be resumed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tunesmith.training.resume import resolve_resume_point

_ROOT = Path(__file__).parents[3]


def train_and_die(folder):
    """Train with a checkpoint every two steps, and die while the one of step 4 is being written."""
    from tests.tiny.training import tiny_trainer, uneven_rows

    trainer = tiny_trainer(Path(folder), uneven_rows(16), save_strategy="steps", save_steps=2)
    right = trainer._save_optimizer_and_scheduler

    def die(output_dir):
        right(output_dir)
        if trainer.state.global_step == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    trainer._save_optimizer_and_scheduler = die
    trainer.train()


@pytest.mark.processes
def test_a_kill_while_saving_leaves_the_last_whole_checkpoint(tmp_path):
    code = f"from tests.unit.training.test_kill import train_and_die; train_and_die({str(tmp_path)!r})"
    path = os.pathsep.join([str(_ROOT), str(_ROOT / "src")])
    finished = subprocess.run(
        [sys.executable, "-c", code], cwd=_ROOT, env={**os.environ, "PYTHONPATH": path}, check=False
    )
    assert finished.returncode == -signal.SIGKILL
    assert (tmp_path / ".checkpoint-4.incomplete").is_dir()
    point = resolve_resume_point(setting=True, output_dir=tmp_path)
    assert point.manifest.step == 2

    from tests.tiny.training import tiny_trainer, uneven_rows

    trainer = tiny_trainer(tmp_path, uneven_rows(16), save_strategy="steps", save_steps=2)
    trainer.restore(point)
    trainer.train(resume_from_checkpoint=str(point.path))
    assert trainer.state.global_step == 8
    assert not (tmp_path / ".checkpoint-4.incomplete").exists()
    assert (tmp_path / "checkpoint-4").is_dir()
