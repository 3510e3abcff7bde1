"""A run that reads its rows as they come: interrupted and resumed, on one process and two, it learns the same rows."""

import json
import shutil

import pytest
import torch

from tests.tiny.processes import run_processes
from tests.tiny.runs import tiny_settings, write_place
from tunesmith.config import load_config
from tunesmith.errors import CheckpointError
from tunesmith.training.monitoring.log import LOG_FILE, read_log
from tunesmith.training.run import run_training


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_place(tmp_path_factory.mktemp("stream"), num_rows=40, attention_dropout=0.1)


def settings_of(folder, out, **settings):
    chosen = {
        "output_dir": str(folder / out),
        "streaming": True,
        "buffer_size": 7,
        "preprocessing_batch_size": 5,
        "max_steps": 14,
        "num_train_epochs": None,
        "save_steps": 5,
        "logging_steps": 1,
        **settings,
    }
    return tiny_settings(folder, **chosen)


def run(folder, out, **settings):
    return run_training(load_config(settings_of(folder, out, **settings)))


def losses_of(result):
    return [line["loss"] for line in read_log(result.output_dir / LOG_FILE) if "loss" in line]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"packing": True}, id="packed"),
        pytest.param(
            {"dataset": "texts", "stage": "pt", "padding_free": False}, id="documents", marks=pytest.mark.slow
        ),
    ],
)
def test_a_resumed_run_goes_on_with_the_very_next_batch(folder, request, settings):
    name = request.node.callspec.id
    whole = run(folder, f"whole-{name}", **settings)
    part = shutil.copytree(whole.output_dir, folder / f"part-{name}")
    for step in (10, 14):
        shutil.rmtree(part / f"checkpoint-{step}")  # as if it had been stopped after step 5
    resumed = run(folder, f"part-{name}", **settings, resume_from_checkpoint=True)
    assert resumed.state.global_step == 14
    assert losses_of(resumed)[-9:] == losses_of(whole)[-9:]
    assert resumed.state.epoch == pytest.approx(whole.state.epoch)
    for key, value in whole.trainer.model.state_dict().items():
        assert torch.equal(value, resumed.trainer.model.state_dict()[key])


def test_a_stream_ends_after_its_epochs_and_accounts_for_its_rows(folder):
    result = run(folder, "ends", num_train_epochs=2, max_steps=500)
    assert result.state.global_step == 20  # twice 40 rows, 4 at a time
    assert result.state.epoch == 2
    report = json.loads((result.output_dir / "data_report.json").read_text())
    (streamed,) = report["streamed"]
    assert (streamed["name"], streamed["read"], streamed["used"]) == ("toy", 80, 80)
    assert "or fewer: it ends after 2 passes" in (result.output_dir / "plan.txt").read_text()
    assert "toy: read as it comes from 1 file" in (result.output_dir / "plan.txt").read_text()


def test_another_buffer_is_another_run(folder):
    run(folder, "buffer", max_steps=5)
    with pytest.raises(CheckpointError, match="buffer_size was 7 and is 8"):
        run(folder, "buffer", resume_from_checkpoint=True, buffer_size=8)


def test_a_run_that_did_not_stream_cannot_go_on_streaming(folder):
    settings = settings_of(folder, "plain", max_steps=5)
    run_training(load_config({**settings, "streaming": False}))
    with pytest.raises(CheckpointError):
        run(folder, "plain", resume_from_checkpoint=True, max_steps=9)


@pytest.mark.slow
@pytest.mark.processes
def test_two_processes_share_the_rows_and_end_together(folder, tmp_path):
    run_processes("tests.equivalence.test_streaming:run_of_two", [str(folder), str(tmp_path)])
    report = json.loads((tmp_path / "out" / "data_report.json").read_text())
    (streamed,) = report["streamed"]
    assert streamed["used"] == 40
    state = json.loads((tmp_path / "out" / "trainer_state.json").read_text())
    assert state["global_step"] == 5


def run_of_two(folder, out):
    from pathlib import Path

    settings = settings_of(Path(folder), "unused", num_train_epochs=1)
    result = run_training(load_config({**settings, "output_dir": f"{out}/out", "max_steps": 500}))
    assert result.trainer.args.world_size == 2
