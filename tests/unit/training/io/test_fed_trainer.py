import pytest

from tests.tiny.training import largest_difference, tiny_trainer, uneven_rows, weights
from tests.unit.training.io.sources import refuse
from tunesmith.training.io.failures import FeedError
from tunesmith.training.io.settings import LoaderPolicy, LoaderSettings
from tunesmith.training.io.tuner import Change
from tunesmith.training.resume import resolve_resume_point


class Fragile(list):
    """Rows of which some cannot be read."""

    broken = frozenset()

    def __getitem__(self, row):
        if row in self.broken:
            refuse()
        return super().__getitem__(row)


def fragile_trainer(folder, broken=(), **options):
    trainer = tiny_trainer(folder, uneven_rows(12), **options)
    trainer.train_dataset = Fragile(trainer.train_dataset)
    trainer.train_dataset.broken = frozenset(broken)
    return trainer


def test_what_was_learnt_is_saved_when_rows_cannot_be_read_and_the_run_goes_on_from_there(tmp_path):
    whole = fragile_trainer(tmp_path / "whole")
    whole.train()
    trainer = fragile_trainer(tmp_path / "out", broken=[7])
    with pytest.raises(FeedError, match="failed at row 7 with ValueError: the picture is broken") as caught:
        trainer.train()
    assert "All is saved up to step 3" in str(caught.value)
    point = resolve_resume_point(setting=True, output_dir=tmp_path / "out")
    assert point.manifest.step == 3
    again = fragile_trainer(tmp_path / "out")
    again.restore(point)
    again.train(resume_from_checkpoint=str(point.path))
    assert largest_difference(weights(whole.model), weights(again.model)) == 0.0


def test_rows_that_an_evaluation_cannot_read_cost_nothing_that_was_learnt(tmp_path):
    evals = Fragile(uneven_rows(6))
    evals.broken = frozenset([3])
    plan = {"describe_source": "row {} of the file".format}
    evals.row_ids = range(100, 200)
    trainer = tiny_trainer(tmp_path, uneven_rows(12), evals=evals, plan=plan, eval_strategy="steps", eval_steps=2)
    with pytest.raises(FeedError, match="failed at row 103 of the file with ValueError") as caught:
        trainer.train()
    assert "All is saved up to step 2" in str(caught.value)
    assert resolve_resume_point(setting=True, output_dir=tmp_path).manifest.step == 2
    with pytest.raises(FeedError, match="failed at row 103 of the file") as caught:
        tiny_trainer(tmp_path / "later", uneven_rows(12), evals=evals, plan=plan).evaluate()
    assert "saved" not in str(caught.value)


def test_nothing_is_saved_before_the_first_step(tmp_path):
    trainer = fragile_trainer(tmp_path, broken=[0])
    with pytest.raises(FeedError, match="No step had been taken"):
        trainer.train()
    assert list(tmp_path.glob("checkpoint-*")) == []


def test_a_process_that_has_its_batches_says_which_has_not_and_why(tmp_path):
    trainer = tiny_trainer(tmp_path, uneven_rows(4))
    trainer.gather = lambda own: [own, "Worker 1 of 2 was ended by SIGKILL."]
    with pytest.raises(FeedError, match=r"Process 1 could not make its batches: Worker 1 of 2 was ended by SIGKILL\."):
        trainer._stop_without_batches(None)


@pytest.mark.processes
def test_a_loader_that_changes_during_a_resumed_run_gives_the_rows_of_a_fixed_one(tmp_path):
    def rows_of(folder, changes, resume=None, max_steps=-1):
        seen = []
        plan = {"loading": LoaderPolicy(start=LoaderSettings(1, 2))} if changes else {}
        trainer = tiny_trainer(
            folder, uneven_rows(40), shuffle=True, num_train_epochs=2, gradient_accumulation_steps=2,
            save_strategy="steps", save_steps=13, max_steps=max_steps, plan=plan,
        )  # fmt: skip
        right = trainer.get_batch_samples

        def get_batch_samples(*arguments):
            if changes and trainer.state.global_step in changes:
                trainer.feed._wanted = Change(LoaderSettings(*changes[trainer.state.global_step]), "the test says so")
            batches, items = right(*arguments)
            seen.extend(batch["row_ids"].tolist() for batch in batches)
            return batches, items

        trainer.get_batch_samples = get_batch_samples
        if resume:
            trainer.restore(resume)
        trainer.train(resume_from_checkpoint=str(resume.path) if resume else None)
        return seen

    fixed = rows_of(tmp_path / "fixed", None)
    first = rows_of(tmp_path / "tuned", {2: (2, 2), 6: (0, 2), 11: (2, 3)}, max_steps=13)
    point = resolve_resume_point(setting=True, output_dir=tmp_path / "tuned")
    second = rows_of(tmp_path / "tuned", {14: (2, 1), 17: (1, 4)}, resume=point)
    assert first + second == fixed
    assert sorted(row for batch in fixed for row in batch) == sorted([*range(40), *range(40)])
