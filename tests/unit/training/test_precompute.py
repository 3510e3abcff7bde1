"""The reference computed once: the same numbers, found again by content."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.tiny.processes import run_processes
from tests.tiny.runs import tiny_run, write_model, write_place
from tests.tiny.training import largest_difference, weights
from tunesmith.runtime.ranks import Ranks, current_ranks
from tunesmith.training import precompute
from tunesmith.training.assembly import assemble_trainer
from tunesmith.training.precompute import Precomputed, precompute_reference
from tunesmith.training.run import prepare_parts, run_training


@pytest.fixture
def folder(tmp_path):
    return write_place(tmp_path, num_rows=10)


@pytest.fixture
def runs_of_the_reference(monkeypatch):
    """Count the batches that the reference is run over."""
    counted = []
    compute = precompute._Store._values_of
    monkeypatch.setattr(precompute._Store, "_values_of", lambda store, rows: counted.append(1) or compute(store, rows))
    return counted


def prepare(folder, **settings):
    values = {"stage": "dpo", "dataset": "pairs", "precompute_reference": True, **settings}
    parts = prepare_parts(tiny_run(folder, **values))
    trainer = assemble_trainer(parts, None).trainer
    return parts, trainer


KINDS = {
    "dpo": {},
    "kto": {"stage": "kto", "dataset": "ratings"},
    "packed": {"packing": True},
    "ld": {"ld_alpha": 0.5},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_carries_what_the_reference_gives_for_it(folder, kind):
    parts, trainer = prepare(folder, **KINDS[kind])
    reference, rows = parts.objective.reference, parts.data.train
    found = precompute_reference(parts, trainer)
    assert isinstance(found.objective.reference, Precomputed)
    assert found.objective.reference.describe() == f"{reference.describe()}, computed for all rows beforehand"
    assert trainer.objective is found.objective
    assert trainer.train_dataset is found.data.train
    for row in range(len(rows)):
        plain = trainer.prepare_rows([rows[row]])
        carried = trainer.prepare_rows([found.data.train[row]])
        both = [(plain, carried)]
        both += [(plain["mismatched"], carried["mismatched"])] if kind == "kto" else []
        for before, after in both:
            expected = reference.completion_log_probabilities(trainer.model, before)
            torch.testing.assert_close(after["reference_log_probabilities"], expected, atol=1e-4, rtol=1e-5)


def test_values_are_found_again_by_content_and_not_by_name(folder, runs_of_the_reference):
    precompute_reference(*prepare(folder))
    first = len(runs_of_the_reference)
    assert first > 0
    (folder / "model").rename(folder / "renamed")
    precompute_reference(*prepare(folder, model_name_or_path=str(folder / "renamed")))
    assert len(runs_of_the_reference) == first
    write_model(folder / "renamed", seed=7)
    precompute_reference(*prepare(folder, model_name_or_path=str(folder / "renamed")))
    assert len(runs_of_the_reference) == 2 * first
    precompute_reference(*prepare(folder, model_name_or_path=str(folder / "renamed"), ld_alpha=0.5))
    assert len(runs_of_the_reference) == 3 * first


def test_the_same_weights_with_other_settings_are_another_reference(folder, runs_of_the_reference):
    precompute_reference(*prepare(folder))
    first = len(runs_of_the_reference)
    settings = json.loads((folder / "model" / "config.json").read_text())
    settings["rms_norm_eps"] = 0.5
    (folder / "model" / "config.json").write_text(json.dumps(settings))
    precompute_reference(*prepare(folder))
    assert len(runs_of_the_reference) == 2 * first


@pytest.mark.parametrize("method", ["bnb", "torchao", "hqq"])
def test_a_compressed_reference_is_known_by_its_codes(folder, runs_of_the_reference, method):
    settings = {"quantization_method": method, "quantization_bit": 8 if method == "torchao" else 4}
    precompute_reference(*prepare(folder, **settings))
    first = len(runs_of_the_reference)
    precompute_reference(*prepare(folder, **settings))
    assert len(runs_of_the_reference) == first
    write_model(folder / "model", seed=7)
    precompute_reference(*prepare(folder, **settings))
    assert len(runs_of_the_reference) == 2 * first


def test_rows_that_are_streamed_are_scored_as_they_come(folder, runs_of_the_reference):
    write_model(folder / "other", seed=7)
    settings = {"streaming": True, "max_steps": 2, "num_train_epochs": None, "eval_dataset": "pairs"}
    parts, trainer = prepare(folder, ref_model=str(folder / "other"), precompute_reference="auto", **settings)
    assert precompute_reference(parts, trainer) is parts  # with prepared rows, another model is run beforehand
    trainer.train()
    assert trainer.state.global_step == 2
    assert runs_of_the_reference == []


@pytest.mark.parametrize("damage", [b"", b"not an array", None])
def test_a_file_that_is_not_whole_is_computed_again(folder, runs_of_the_reference, damage):
    precompute_reference(*prepare(folder))
    first = len(runs_of_the_reference)
    (file,) = (folder / "cache").glob("reference-*.npy")
    if damage is None:
        np.save(file, np.zeros((3, 2), dtype=np.float32))
    else:
        file.write_bytes(damage)
    precompute_reference(*prepare(folder))
    assert len(runs_of_the_reference) == 2 * first


def test_a_folder_that_cannot_be_written_costs_a_warning_alone(folder, monkeypatch, caplog):
    monkeypatch.setattr(precompute.np, "save", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left")))
    found = precompute_reference(*prepare(folder))
    assert isinstance(found.objective.reference, Precomputed)
    assert "could not be kept" in caplog.text


@pytest.mark.parametrize("failure", [KeyboardInterrupt, torch.OutOfMemoryError, None])
def test_what_was_computed_before_a_run_stopped_is_not_computed_again(folder, monkeypatch, failure):
    """It is written when the run is left, and every now and then for those that are killed."""
    expected = precompute_reference(*prepare(folder, per_device_eval_batch_size=2)).data.train
    (file,) = (folder / "cache").glob("reference-*.npy")
    values = np.load(file)
    file.unlink()
    right = precompute._Store._values_of
    counted = []

    def stop_after_three(store, rows):
        counted.append(len(rows))
        if len(counted) == 4:
            raise failure or SystemExit
        return right(store, rows)

    monkeypatch.setattr(precompute._Store, "_values_of", stop_after_three)
    if failure is None:  # nobody gets to write at the end
        monkeypatch.setattr(precompute, "_SECONDS_BETWEEN_WRITES", 0.0)
        monkeypatch.setattr(precompute._Unfinished, "keeping", lambda self, values: nullcontext())
    with pytest.raises(failure or SystemExit):
        precompute_reference(*prepare(folder, per_device_eval_batch_size=2))
    assert not file.exists()
    assert len(list((folder / "cache").glob("reference-*.part"))) == 1
    counted[:] = [0] * 4
    found = precompute_reference(*prepare(folder, per_device_eval_batch_size=2)).data.train
    assert counted[4:] == [2, 2]  # of five batches
    np.testing.assert_array_equal(np.load(file), values)
    assert not list((folder / "cache").glob("reference-*.part"))
    assert len(found) == len(expected) == 10


@pytest.mark.parametrize(
    ("settings", "is_wanted"),
    [
        ({"num_train_epochs": 1}, False),
        ({"num_train_epochs": 2}, True),
        ({"max_steps": 2}, False),
        ({"num_train_epochs": 1, "ref_model": "model"}, True),
        ({"num_train_epochs": 2, "precompute_reference": False}, False),
        ({"num_train_epochs": 2, "pref_loss": "orpo"}, False),
    ],
)
def test_auto_computes_beforehand_where_it_saves_something(folder, settings, is_wanted):
    if "ref_model" in settings:
        settings = {**settings, "ref_model": str(folder / "model")}
    parts, trainer = prepare(folder, **{"precompute_reference": "auto", **settings})
    found = precompute_reference(parts, trainer)
    assert isinstance(getattr(found.objective, "reference", None), Precomputed) == is_wanted


def test_a_run_with_stored_values_learns_the_same(folder):
    def train(name, **settings):
        config = tiny_run(
            folder,
            stage="dpo",
            dataset="pairs",
            output_dir=str(folder / name),
            val_size=2,
            do_eval=True,
            **{"num_train_epochs": 2, "per_device_eval_batch_size": 2, **settings},
        )
        result = run_training(config)
        return result.trainer.model.state_dict(), result.metrics["eval_loss"]

    expected, expected_loss = train("plain", precompute_reference=False)
    found, loss = train("stored", precompute_reference=True)
    assert loss == pytest.approx(expected_loss, abs=1e-5)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("others_find_it", [True, False])
def test_values_are_taken_from_the_cache_by_all_processes_or_by_none(folder, monkeypatch, others_find_it):
    parts, trainer = prepare(folder)
    precompute_reference(parts, trainer)
    (file,) = (folder / "cache").glob("reference-*.npy")

    def gather(found, own):
        found[:] = [own, others_find_it]

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    two = replace(parts, ranks=Ranks(rank=0, local_rank=0, world_size=2, local_world_size=1))
    found = precompute._Store(two, trainer, parts.objective.reference)._find(file, len(parts.data.train))
    assert (found is not None) == others_find_it


def train_in_processes(folder, cache, batch_size):
    settings = {"stage": "dpo", "dataset": "pairs", "num_train_epochs": 2, "precompute_reference": True}
    settings |= {"per_device_train_batch_size": int(batch_size), "per_device_eval_batch_size": 2}
    settings |= {"output_dir": str(Path(folder) / cache), "dataset_cache_dir": str(Path(folder) / cache)}
    result = run_training(tiny_run(Path(folder), **settings))
    if current_ranks().is_main:
        torch.save(weights(result.trainer.model), Path(folder) / f"{cache}.pt")


@pytest.mark.slow
@pytest.mark.processes
def test_two_processes_compute_what_one_computes(folder):
    """Ten rows in five batches: one process has three of them, the other two."""
    train_in_processes(folder, "one", 4)
    run_processes("tests.unit.training.test_precompute:train_in_processes", [str(folder), "two", "2"])
    expected, found = (torch.load(folder / f"{name}.pt") for name in ("one", "two"))
    assert largest_difference({key.removeprefix("module."): each for key, each in found.items()}, expected) < 1e-4
    (one,), (two,) = ((folder / name).glob("reference-*.npy") for name in ("one", "two"))
    assert one.name == two.name
    np.testing.assert_allclose(np.load(two), np.load(one), atol=1e-4)
