from dataclasses import replace

import pytest
import torch

from tests.tiny.models import tiny_model
from tests.tiny.preferences import FixedReference, tiny_objective, uneven_pairs
from tests.tiny.runs import tiny_run
from tests.tiny.training import largest_difference, tiny_trainer, uneven_rows, weights
from tests.unit.data.streaming.files import rows_of, text_spec, write_file
from tests.unit.data.streaming.sources import text_source
from tunesmith.config.training import TrainingConfig
from tunesmith.data.collators import build_collator
from tunesmith.errors import TrainingError
from tunesmith.training import run
from tunesmith.training.io.halving import Halving, explain_lost_exchange, lack_of_memory_told, split_items


def test_items_are_halved_in_order_and_packs_between_their_samples():
    assert list(split_items(list("abcde"), 1)) == [list("abc"), list("de")]
    assert list(split_items(list("abcde"), 2)) == [list("ab"), ["c"], ["d"], ["e"]]
    assert list(split_items([["x", "y", "z"]], 1)) == [[["x", "y"]], [["z"]]]
    assert list(split_items([["x", "y"], ["z"]], 2)) == [[["x"]], [["y"]], [["z"]]]
    assert list(split_items(["a"], 3)) == [["a"]]


class SmallMemory:
    """Raises as a GPU does: in the forward pass, or in the backward pass when some gradients are there already."""

    def __init__(self, objective, largest, where):
        self.objective, self.largest, self.where = objective, largest, where
        self.shapes, self.failures = [], 0

    def __getattr__(self, name):
        return getattr(self.objective, name)

    def compute(self, model, batch):
        positions = batch["input_ids"].numel()
        self.shapes.append(positions)
        fits = positions <= self.largest or not model.training
        self.failures += not fits
        if not fits and self.where == "forward":
            raise torch.OutOfMemoryError("out of memory")
        result = self.objective.compute(model, batch)
        if not fits:
            embedding = model.get_input_embeddings().weight

            def fail(gradient):
                embedding.grad = torch.ones_like(embedding) if embedding.grad is None else embedding.grad + 1
                raise torch.OutOfMemoryError("out of memory")

            result.total.register_hook(fail)
        return result


def train(folder, rows, largest=None, where="forward", **settings):
    model = tiny_model("llama")
    options = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "logging_steps": 1, **settings}
    trainer = tiny_trainer(folder, rows, model=model, **options)
    if largest is not None:
        trainer.objective = SmallMemory(trainer.objective, largest, where)
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    return trainer, weights(model), losses


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("layout", ["padded", "flat"])
def test_a_step_that_does_not_fit_is_done_in_parts_with_the_same_gradient(tmp_path, caplog, where, layout):
    rows = uneven_rows(32, seed=3)
    _, expected, whole_losses = train(tmp_path / "whole", rows, layout=layout)
    trainer, found, losses = train(tmp_path / "parts", rows, largest=60, where=where, layout=layout)
    assert trainer.objective.failures > 0
    assert largest_difference(expected, found) < 1e-6
    assert losses == pytest.approx(whole_losses, rel=1e-5)
    assert "it is done in 2 parts, with the same rows and the same gradient" in caplog.text
    assert trainer.state.global_step == 2


def test_steps_of_a_stream_are_done_in_parts_as_well(tmp_path):
    spec = text_spec(write_file(tmp_path / "a.jsonl", rows_of(40), kind=".jsonl"))
    options = {"plan": {"stream": text_source(spec)}, "max_steps": 2}
    _, expected, whole_losses = train(tmp_path / "whole", uneven_rows(4), **options)
    trainer, found, losses = train(tmp_path / "parts", uneven_rows(4), largest=60, **options)
    assert trainer.objective.failures > 0
    assert largest_difference(expected, found) < 1e-6
    assert losses == pytest.approx(whole_losses, rel=1e-5)


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_parts_are_compared_with_the_means_of_their_whole_step(tmp_path, where):
    """A batch that is all of its step measures the step as it is scored, before or after it turns out not to fit."""

    def learn(name, largest=None):
        model = tiny_model("llama")
        objective = tiny_objective(
            model, reference=FixedReference(tiny_model("llama", seed=4)), pref_loss=("kto_pair",), pref_beta=0.4
        )
        trainer = tiny_trainer(
            tmp_path / name,
            uneven_pairs(16),
            model=model,
            objective=objective if largest is None else SmallMemory(objective, largest, where),
            collator=build_collator("padded", kind="pairs", pad_token_id=417),
            per_device_train_batch_size=8,
            logging_steps=1,
        )
        trainer.train()
        return trainer, weights(model), [line["loss"] for line in trainer.state.log_history if "loss" in line]

    _, expected, whole_losses = learn("whole")
    trainer, found, losses = learn("parts", largest=200)
    assert trainer.objective.failures > 0
    assert largest_difference(expected, found) < 1e-6
    assert losses == pytest.approx(whole_losses, rel=1e-5)


def test_a_step_whose_backward_pass_changes_weights_is_not_repeated(tmp_path):
    rows = uneven_rows(16, seed=3)
    trainer = tiny_trainer(tmp_path, rows, model=tiny_model("llama"), per_device_train_batch_size=8)
    trainer.objective = SmallMemory(trainer.objective, 60, "forward")
    trainer.plan = replace(trainer.plan, optimization=TrainingConfig(optimizer_in_backward=True))
    with pytest.raises(TrainingError, match=r"`optimizer_in_backward` does not let be done in halves"):
        trainer.train()


def test_batches_of_a_size_that_failed_are_not_tried_whole_again(tmp_path):
    rows = [row for row in uneven_rows(400) if len(row["input_ids"]) == 20][:16]
    trainer, _, _ = train(tmp_path, rows, largest=100, per_device_train_batch_size=4, gradient_accumulation_steps=1)
    assert trainer.objective.failures == 0
    trainer, _, _ = train(tmp_path, rows, largest=70, per_device_train_batch_size=4, gradient_accumulation_steps=1)
    assert trainer.objective.failures == 1  # 80 positions, once
    assert trainer.objective.shapes == [80] + [40] * 8


def test_a_row_that_does_not_fit_by_itself_stops_the_run(tmp_path):
    with pytest.raises(TrainingError, match="holds a single row and cannot be halved"):
        train(tmp_path, uneven_rows(8), largest=3)


def test_packed_rows_are_halved_between_samples(tmp_path):
    rows = uneven_rows(8, seed=5)
    packs = [rows[:4], rows[4:]]
    options = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 1, "layout": "flat"}
    _, expected, _ = train(tmp_path / "whole", packs, **options)
    trainer, found, _ = train(tmp_path / "parts", packs, largest=24, **options)
    assert trainer.objective.failures > 0
    assert largest_difference(expected, found) < 1e-6


def test_the_level_follows_from_what_did_not_fit():
    halving = Halving(lambda number: [], list, too_large=64)
    levels = [halving.first_level({"input_ids": torch.zeros(1, size)}) for size in (63, 64, 127, 128, 300)]
    assert levels == [0, 1, 2, 2, 3]  # 127 positions may be halved into 63 and 64
    assert "exchanging" in str(explain_lost_exchange())


NO_MEMORY = (
    "[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"
)


@pytest.mark.parametrize("error", [RuntimeError(NO_MEMORY), RuntimeError("std::bad_alloc"), MemoryError()])
def test_what_a_cpu_raises_without_memory_is_told_as_what_a_gpu_raises(error):
    with pytest.raises(torch.OutOfMemoryError) as caught, lack_of_memory_told():
        raise error
    assert caught.value.__cause__ is error


def test_other_errors_and_those_of_a_gpu_stay_what_they_are():
    for error in (RuntimeError("the shapes do not match"), torch.OutOfMemoryError("CUDA out of memory")):
        with pytest.raises(RuntimeError) as caught, lack_of_memory_told():
            raise error
        assert caught.value is error


class SmallMemoryToMeasure(SmallMemory):
    """Raises in evaluation, as a CPU does where the system promises no more memory."""

    def compute(self, model, batch):
        if not model.training and batch["input_ids"].numel() > self.largest:
            self.failures += 1
            raise RuntimeError(NO_MEMORY)
        return self.objective.compute(model, batch)


def test_an_evaluation_that_does_not_fit_is_measured_in_parts(tmp_path, caplog):
    trainer = tiny_trainer(tmp_path, uneven_rows(4), evals=uneven_rows(30, seed=3), per_device_eval_batch_size=8)
    expected = trainer.evaluate()
    trainer.objective = SmallMemoryToMeasure(trainer.objective, 60, "forward")
    found = trainer.evaluate()
    assert found["eval_loss"] == pytest.approx(expected["eval_loss"], rel=1e-6)
    failures = trainer.objective.failures
    assert 2 <= failures <= 4  # of 8 rows and of 4; what is as long is halved from the start
    assert trainer.evaluate()["eval_loss"] == found["eval_loss"]
    assert trainer.objective.failures == failures  # the next evaluation knows what does not fit
    assert "of the evaluation: it is measured in 2 parts, which gives the same numbers" in caplog.text
    trainer.objective.largest = 3
    with pytest.raises(TrainingError, match="of the evaluation that holds a single row and cannot be halved"):
        trainer.evaluate()


def test_parts_of_an_evaluation_are_compared_with_the_means_of_the_whole_set(tmp_path):
    model = tiny_model("llama")
    objective = tiny_objective(
        model, reference=FixedReference(tiny_model("llama", seed=4)), pref_loss=("kto_pair",), pref_beta=0.4
    )
    trainer = tiny_trainer(
        tmp_path,
        uneven_pairs(4),
        model=model,
        objective=objective,
        evals=uneven_pairs(8),
        collator=build_collator("padded", kind="pairs", pad_token_id=417),
        per_device_eval_batch_size=8,
    )
    expected = trainer.evaluate()
    trainer.objective = SmallMemoryToMeasure(objective, 200, "forward")
    found = trainer.evaluate()
    assert trainer.objective.failures > 0
    for name in ("eval_loss", "eval_rewards/margins", "eval_rewards/accuracies"):
        assert found[name] == pytest.approx(expected[name], rel=1e-5)


def test_memory_that_runs_out_for_the_optimizer_is_told(toy_place, tmp_path, monkeypatch):
    def lack(config):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.")

    monkeypatch.setattr(run, "_run", lack)
    with pytest.raises(TrainingError, match=r"Out of memory outside of a micro-batch.*4096 bytes(.|\n)*Train fewer"):
        run.run_training(tiny_run(toy_place, output_dir=str(tmp_path)))
