"""The folder of a run is its own, and nothing half-done stays in it."""

import errno
import json
import os

import pytest

from tests.tiny.runs import tiny_run, write_place
from tunesmith.errors import CheckpointError, ConfigError
from tunesmith.runtime.folder_lock import LOCK_FILE, hold_folder
from tunesmith.training.run import run_training


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return write_place(tmp_path_factory.mktemp("run"))


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


def test_figures_of_an_older_run_do_not_stand_beside_new_weights(place, tmp_path):
    settings = {"output_dir": str(tmp_path / "out"), "max_steps": 1}
    run_training(tiny_run(place, **settings, val_size=4, do_train=True, do_eval=True))
    first = json.loads((tmp_path / "out" / "all_results.json").read_text())
    assert first.keys() >= {"train_loss", "eval_loss"}
    run_training(tiny_run(place, **settings, overwrite_output_dir=True))
    second = json.loads((tmp_path / "out" / "all_results.json").read_text())
    assert not {key for key in second if key.startswith("eval_")}
    assert not (tmp_path / "out" / "eval_results.json").exists()


def test_a_run_that_goes_on_keeps_its_figures(place, tmp_path):
    settings = {"output_dir": str(tmp_path / "out"), "max_steps": 2, "save_steps": 1, "val_size": 4}
    run_training(tiny_run(place, **settings, do_train=True, do_eval=True))
    run_training(tiny_run(place, **settings, resume_from_checkpoint=True))
    assert "eval_loss" in json.loads((tmp_path / "out" / "all_results.json").read_text())


def test_an_older_run_of_another_kind_leaves_nothing_that_would_be_loaded(place, tmp_path):
    out = tmp_path / "out"
    settings = {"output_dir": str(out), "max_steps": 1, "overwrite_output_dir": True}
    run_training(tiny_run(place, **settings))
    (out / "notes.txt").write_text("mine")
    run_training(tiny_run(place, **settings, finetuning_type="full", lora_rank=None))
    assert not {path.name for path in out.iterdir()} & {"adapter_config.json", "adapter_model.safetensors"}
    run_training(tiny_run(place, **settings))
    assert not {path.name for path in out.iterdir()} & {"config.json", "model.safetensors", "generation_config.json"}
    assert {path.name for path in out.iterdir()} >= {"adapter_config.json", "tokenizer.json", "notes.txt"}
    modes = {(out / name).stat().st_mode for name in ("adapter_model.safetensors", "tokenizer.json")}
    assert len(modes) == 1  # whoever may read the one may read the other
