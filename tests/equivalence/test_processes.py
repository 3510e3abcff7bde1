"""One process and two train the same weights, write the same log and resume alike."""

import json
from pathlib import Path

import pytest
import torch

from tests.tiny.models import tiny_model
from tests.tiny.processes import run_processes
from tests.tiny.training import largest_difference, tiny_trainer, uneven_rows, weights
from tunesmith.runtime.ranks import current_ranks
from tunesmith.training.monitoring.log import LOG_FILE, LogFile, read_log
from tunesmith.training.resume import resolve_resume_point

NUM_ROWS = 21  # the last step has 5 rows: two processes get 2 micro-batches and 1, the gap is filled


def train(folder, batch_size, accumulation, resume="", max_steps="-1"):
    folder = Path(folder)
    resume_point = resolve_resume_point(setting=True, output_dir=folder) if resume else None
    trainer = tiny_trainer(
        folder,
        uneven_rows(NUM_ROWS),
        model=tiny_model("llama"),
        ranks=current_ranks(),
        shuffle=True,
        evals=uneven_rows(7, seed=5),
        per_device_train_batch_size=int(batch_size),
        gradient_accumulation_steps=int(accumulation),
        num_train_epochs=2,
        max_steps=int(max_steps),
        optim="sgd",
        eval_strategy="epoch",
        save_strategy="epoch",
    )
    trainer.add_callback(LogFile(folder / LOG_FILE, trainer.meter))
    if resume_point is not None:
        trainer.restore(resume_point)
    trainer.train(resume_from_checkpoint=None if resume_point is None else str(resume_point.path))
    if current_ranks().is_main:
        torch.save(weights(trainer.model), folder / "weights.pt")
        (folder / "state.json").write_text(json.dumps(trainer.state.log_history))


def losses_of(folder):
    return [line.get("loss", line.get("eval_loss")) for line in read_log(folder / LOG_FILE)]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    train(folder, 8, 1)
    return folder


@pytest.mark.processes
@pytest.mark.parametrize(("batch_size", "accumulation"), [(4, 1), pytest.param(1, 4, marks=pytest.mark.slow)])
def test_two_processes_train_what_one_trains(tmp_path, one_process, batch_size, accumulation):
    run_processes("tests.equivalence.test_processes:train", [str(tmp_path), str(batch_size), str(accumulation)])
    assert losses_of(tmp_path) == pytest.approx(losses_of(one_process), abs=1e-5)
    found, expected = torch.load(tmp_path / "weights.pt"), torch.load(one_process / "weights.pt")
    assert largest_difference(found, expected) < 1e-5
    tokens = [
        [line["total_tokens"] for line in read_log(run / LOG_FILE) if "loss" in line] for run in (tmp_path, one_process)
    ]
    assert tokens[0][:2] == tokens[1][:2]  # the third step has a filler, whose tokens are computed


@pytest.mark.processes
def test_two_processes_resume_to_the_same_bits(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    target = "tests.equivalence.test_processes:train"
    run_processes(target, [str(whole), "4", "1"])
    run_processes(target, [str(parts), "4", "1", "", "3"])
    assert (parts / "checkpoint-3" / "rng_state_1.pth").is_file()
    run_processes(target, [str(parts), "4", "1", "resume"])
    found, expected = torch.load(parts / "weights.pt"), torch.load(whole / "weights.pt")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert losses_of(parts) == losses_of(whole)
