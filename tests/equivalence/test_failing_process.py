"""Where one process of a run cannot make its batches, all of them save and stop at the same step."""

from pathlib import Path

import pytest

from tests.tiny.models import tiny_model
from tests.tiny.processes import run_processes
from tests.tiny.training import tiny_trainer, uneven_rows
from tests.unit.training.io.test_fed_trainer import Fragile
from tunesmith.runtime.ranks import current_ranks
from tunesmith.training.io.failures import FeedError
from tunesmith.training.monitoring.account import PHASES
from tunesmith.training.resume import resolve_resume_point


def train(folder):
    folder, ranks = Path(folder), current_ranks()
    trainer = tiny_trainer(folder, uneven_rows(16), model=tiny_model("llama"), ranks=ranks)
    trainer.train_dataset = Fragile(trainer.train_dataset)
    trainer.train_dataset.broken = frozenset([10])  # of the third step, in the second process
    try:
        trainer.train()
    except FeedError as error:
        (folder / f"error-{ranks.rank}.txt").write_text(str(error))
    assert len(trainer.meter.phase_seconds.seconds) == 2
    assert all(len(process) == len(PHASES) for process in trainer.meter.phase_seconds.seconds)
    assert min(sum(process) for process in trainer.meter.phase_seconds.seconds) > 0


@pytest.mark.slow
@pytest.mark.processes
def test_all_processes_stop_where_one_has_no_batch(tmp_path):
    run_processes("tests.equivalence.test_failing_process:train", [str(tmp_path)], timeout_seconds=120)
    first, second = ((tmp_path / f"error-{rank}.txt").read_text() for rank in (0, 1))
    assert "Another process of this run could not make its batches." in first
    assert "failed at row 10 with ValueError" in second
    assert all("All is saved up to step 2" in text for text in (first, second))
    assert resolve_resume_point(setting=True, output_dir=tmp_path).manifest.step == 2
