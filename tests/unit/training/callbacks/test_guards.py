import contextlib
import itertools
import math

import accelerate
import pytest
import torch
from transformers import TrainerCallback

from tests.tiny.models import tiny_model
from tests.tiny.training import largest_difference, tiny_trainer, uneven_rows, weights
from tunesmith.errors import TrainingError
from tunesmith.training.callbacks.guards import NumberGuard


def describe(row):
    return f"data set toy, file toy.json, row {row + 1}"


def guarded(folder, rows, **settings):
    trainer = tiny_trainer(folder, rows, model=settings.pop("model", None), **settings)
    trainer.add_callback(NumberGuard(trainer.step_record, describe))
    return trainer


class RememberWeights(TrainerCallback):
    """Keeps the weights as they are after the newest step."""

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.weights = weights(model)


def stop(trainer, match):
    """Train until the guard stops it, and return what it says."""
    with pytest.raises(TrainingError, match=match) as caught:
        trainer.train()
    return str(caught.value)


def test_a_loss_that_is_no_number_stops_the_run_and_names_its_rows(tmp_path):
    trainer = guarded(tmp_path, uneven_rows(8), per_device_train_batch_size=2, gradient_accumulation_steps=2)
    right = trainer.objective.compute
    calls = []

    class Poisoned(type(trainer.objective)):
        def compute(self, model, batch):
            calls.append(batch)
            result = right(model, batch)
            if len(calls) == 4:  # second micro-batch of the second step: rows 6 and 7
                return type(result)(result.total * float("nan"), result.items)
            return result

    trainer.objective = Poisoned(trainer.objective.head, chunk_tokens=8)
    remembered = RememberWeights()
    trainer.add_callback(remembered)
    message = stop(trainer, "The loss of step 2 is nan")
    assert "row 7" in message
    assert "row 8" in message
    assert "row 5" not in message
    assert "before the optimizer step" in message
    assert largest_difference(weights(trainer.model), remembered.weights) == 0.0


def test_infinite_weights_stop_the_first_step(tmp_path):
    model = tiny_model("llama")
    with torch.no_grad():
        model.model.norm.weight.fill_(float("inf"))
    message = stop(guarded(tmp_path, uneven_rows(4), model=model), "The loss of step 1 is (nan|inf)")
    assert "data set toy, file toy.json, row 1" in message


def test_a_gradient_that_is_no_number_stops_the_run(tmp_path):
    model = tiny_model("llama")
    model.model.layers[0].mlp.down_proj.weight.register_hook(lambda gradient: gradient * float("inf"))
    message = stop(guarded(tmp_path, uneven_rows(4), model=model), "The gradient of step 1 is (nan|inf)")
    assert "although its loss is finite" in message


def test_a_loss_of_zero_stops_the_run(tmp_path):
    model = tiny_model("llama", tied=False)
    rows = uneven_rows(2)
    for row in rows:
        row["input_ids"][:] = 7
    with torch.no_grad():  # one token gets all probability whatever comes before it
        model.lm_head.weight.zero_()
        model.model.norm.weight.fill_(1.0)
        model.lm_head.bias = torch.nn.Parameter(torch.full((420,), -1e4))
        model.lm_head.bias[7] = 1e4
    stop(guarded(tmp_path, rows, model=model), "The loss of step 1 is exactly 0")


def test_long_lists_of_rows_are_cut(tmp_path):
    model = tiny_model("llama")
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    message = stop(guarded(tmp_path, uneven_rows(30), model=model, per_device_train_batch_size=30), "is nan")
    assert message.count("data set toy") == 16
    assert "and 14 more" in message


def test_good_numbers_pass(tmp_path):
    trainer = guarded(tmp_path, uneven_rows(8))
    trainer.train()
    assert trainer.state.global_step == 4


def test_overflow_under_a_loss_scaler_is_not_an_error(tmp_path):
    trainer = tiny_trainer(tmp_path, uneven_rows(2))
    trainer.step_record.restart([3], [[0]])
    trainer.step_record.losses.append(torch.tensor(1.0))
    trainer.step_record.gradient_norm = float("inf")
    guard = NumberGuard(trainer.step_record, describe, scales_loss=True)
    guard.on_pre_optimizer_step(trainer.args, trainer.state, trainer.control)
    strict = NumberGuard(trainer.step_record, describe)
    with pytest.raises(TrainingError, match="gradient of step 1 is inf"):
        strict.on_pre_optimizer_step(trainer.args, trainer.state, trainer.control)


def test_a_step_without_items_is_not_an_error(tmp_path):
    trainer = tiny_trainer(tmp_path, uneven_rows(2))
    trainer.step_record.restart([0], [[0]])
    trainer.step_record.losses.append(torch.tensor(0.0))
    NumberGuard(trainer.step_record, describe).on_pre_optimizer_step(trainer.args, trainer.state, trainer.control)


def test_a_run_goes_on_when_a_scaled_gradient_overflows(tmp_path, monkeypatch):
    """fp16 as on a GPU, on the CPU: the overflowing step is skipped, the scale halved, the schedule stands still."""
    model = tiny_model("llama")
    trainer = tiny_trainer(tmp_path, uneven_rows(8), model=model, max_grad_norm=1.0, lr_scheduler_type="linear")
    trainer.add_callback(NumberGuard(trainer.step_record, describe, scales_loss=True))
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    trainer.accelerator.native_amp = True
    monkeypatch.setattr(type(trainer.accelerator), "mixed_precision", property(lambda _: "fp16"))
    monkeypatch.setattr(trainer.accelerator, "autocast", contextlib.nullcontext)
    monkeypatch.setattr(accelerate.accelerator, "get_mixed_precision_context_manager", lambda *_: lambda call: call)
    calls = []

    def overflow_in_step_two(gradient):
        calls.append(gradient)
        return gradient * float("inf") if len(calls) == 2 else gradient

    model.model.layers[0].mlp.down_proj.weight.register_hook(overflow_in_step_two)
    steps = [weights(model)]

    class Remember(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            steps.append(weights(model))

    trainer.add_callback(Remember())
    trainer.train()
    moved = [largest_difference(before, after) > 0 for before, after in itertools.pairwise(steps)]
    assert moved == [True, False, True, True]
    assert trainer.accelerator.scaler.get_scale() == 2.0**9
    rates = [line["learning_rate"] for line in trainer.state.log_history if "learning_rate" in line]
    assert rates == [0.5, 0.375, 0.375, 0.25]
    norms = [line["grad_norm"] for line in trainer.state.log_history if "grad_norm" in line]
    assert [math.isfinite(norm) for norm in norms] == moved
    assert max(norm for norm in norms if math.isfinite(norm)) < 50  # of the loss, not of the scaled loss
