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
    folder.mkdir(exist_ok=True)
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


def train_whole_and_in_parts(folder):
    """Train once from start to end and once with a stop after three steps, in the processes that are there."""
    train(f"{folder}/whole", 4, 1)
    train(f"{folder}/parts", 4, 1, max_steps=3)
    train(f"{folder}/parts", 4, 1, resume="yes")


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """Folder of the runs of `train_whole_and_in_parts`; starting processes takes longer than what they do."""
    folder = tmp_path_factory.mktemp("two")
    run_processes("tests.equivalence.test_processes:train_whole_and_in_parts", [str(folder)])
    return folder


def check_trained_alike(two, one):
    assert losses_of(two) == pytest.approx(losses_of(one), abs=1e-5)
    found, expected = torch.load(two / "weights.pt"), torch.load(one / "weights.pt")
    assert largest_difference(found, expected) < 1e-5
    tokens = [[line["total_tokens"] for line in read_log(run / LOG_FILE) if "loss" in line] for run in (two, one)]
    assert tokens[0][:2] == tokens[1][:2]  # the third step has a filler, whose tokens are computed


@pytest.mark.processes
def test_two_processes_train_what_one_trains(two_processes, one_process):
    check_trained_alike(two_processes / "whole", one_process)


@pytest.mark.slow
@pytest.mark.processes
def test_two_processes_train_in_small_batches_what_one_trains(tmp_path, one_process):
    run_processes("tests.equivalence.test_processes:train", [str(tmp_path), "1", "4"])
    check_trained_alike(tmp_path, one_process)


@pytest.mark.processes
def test_two_processes_resume_to_the_same_bits(two_processes):
    whole, parts = two_processes / "whole", two_processes / "parts"
    assert (parts / "checkpoint-3" / "rng_state_1.pth").is_file()
    found, expected = torch.load(parts / "weights.pt"), torch.load(whole / "weights.pt")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert losses_of(parts) == losses_of(whole)


@pytest.mark.slow
@pytest.mark.processes
def test_new_processes_resume_to_the_same_bits(tmp_path, two_processes):
    target = "tests.equivalence.test_processes:train"
    run_processes(target, [str(tmp_path), "4", "1", "", "3"])
    run_processes(target, [str(tmp_path), "4", "1", "resume"])
    found, expected = torch.load(tmp_path / "weights.pt"), torch.load(two_processes / "whole" / "weights.pt")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
