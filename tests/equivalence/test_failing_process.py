"""Where one process of a run cannot make its batches, all of them save and stop at the same step."""

from pathlib import Path

import pytest

from tests.equivalence.test_preferences import build_trainer
from tests.tiny.models import tiny_model
from tests.tiny.processes import run_processes
from tests.tiny.training import tiny_trainer, uneven_rows
from tests.unit.training.io.test_fed_trainer import Fragile
from tunesmith.runtime.ranks import current_ranks
from tunesmith.training.io.failures import FeedError
from tunesmith.training.monitoring.account import PHASES
from tunesmith.training.resume import resolve_resume_point


def fragile(num_rows, broken):
    rows = Fragile(uneven_rows(num_rows))
    rows.broken = frozenset(broken)
    return rows


def pairs_trainer(folder):
    """Its evaluation has sums of its own besides the loss, and one process fails at its first batch."""
    evals = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 2}
    trainer = build_trainer(folder, "rm", ranks=current_ranks(), **evals)
    trainer.eval_dataset = Fragile(trainer.eval_dataset)
    trainer.eval_dataset.broken = frozenset([3])
    return trainer


def train(folder, where):
    ranks = current_ranks()
    evaluated = {"evals": fragile(8, [5]), "eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 2}
    if where == "pairs":
        trainer = pairs_trainer(folder)
    else:
        evaluated = evaluated if where == "eval" else {}
        trainer = tiny_trainer(folder, uneven_rows(16), model=tiny_model("llama"), ranks=ranks, **evaluated)
    if where == "train":
        trainer.train_dataset = fragile(16, [10])  # of the third step, in the second process
    try:
        trainer.train()
    except FeedError as error:
        (folder / f"error-{ranks.rank}.txt").write_text(str(error))
    assert len(trainer.meter.phase_seconds.seconds) == 2
    assert all(len(process) == len(PHASES) for process in trainer.meter.phase_seconds.seconds)
    assert min(sum(process) for process in trainer.meter.phase_seconds.seconds) > 0


CASES = {"train": 10, "eval": 5, "pairs": 3}
"""The row that cannot be read, by where it is."""


def train_everywhere(folder):
    for where in CASES:
        place = Path(folder) / where
        place.mkdir(exist_ok=True)
        train(place, where)


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """Folder of the runs of `train_everywhere`; starting processes takes longer than what they do."""
    folder = tmp_path_factory.mktemp("two")
    run_processes("tests.equivalence.test_failing_process:train_everywhere", [str(folder)], timeout_seconds=120)
    return folder


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(("where", "row"), CASES.items())
def test_all_processes_stop_where_one_has_no_batch(two_processes, where, row):
    folder = two_processes / where
    texts = [(folder / f"error-{rank}.txt").read_text() for rank in (0, 1)]
    assert sum("could not make its batches: " in text for text in texts) == 1
    assert all(f"failed at row {row} with ValueError" in text for text in texts)
    assert all("All is saved up to step 2" in text for text in texts)
    assert resolve_resume_point(setting=True, output_dir=folder).manifest.step == 2
