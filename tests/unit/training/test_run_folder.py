"""The folder of a run is its own, and nothing half-done stays in it."""

import errno
import os

import pytest

from tests.tiny.runs import tiny_run, write_dataset, write_model
from tunesmith.errors import CheckpointError, ConfigError
from tunesmith.runtime.folder_lock import LOCK_FILE, hold_folder
from tunesmith.training.run import run_training


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_model(folder / "model")
    write_dataset(folder / "data")
    return folder


def test_a_second_run_in_a_folder_in_use_is_refused_before_it_writes(place, tmp_path):
    out = tmp_path / "out"
    with hold_folder(out, "output_dir"):
        before = sorted(out.iterdir())
        with pytest.raises(ConfigError, match=rf"{out} is in use by another run \(process {os.getpid()} on"):
            run_training(tiny_run(place, output_dir=str(out), max_steps=1))
        assert sorted(out.iterdir()) == before
    run_training(tiny_run(place, output_dir=str(out), max_steps=1))
    assert not (out / LOCK_FILE).exists()


def test_a_checkpoint_that_cannot_be_written_leaves_nothing(place, tmp_path, monkeypatch):
    def no_room(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tunesmith.training.trainer.finish_checkpoint", no_room)
    out = tmp_path / "out"
    with pytest.raises(CheckpointError, match=r"checkpoint-1 cannot be written: No space left"):
        run_training(tiny_run(place, output_dir=str(out), max_steps=2, save_steps=1))
    assert not any("checkpoint" in path.name for path in out.iterdir())


def test_a_callback_that_is_not_there_is_refused_before_data_and_model(place, tmp_path, monkeypatch):
    monkeypatch.setattr("tunesmith.training.run.prepare_data", lambda *arguments: pytest.fail("read the data"))
    with pytest.raises(ConfigError, match="callbacks: there is no module 'nope'"):
        run_training(tiny_run(place, output_dir=str(tmp_path / "out"), callbacks=["nope:X"]))
    assert not (tmp_path / "out").exists()
