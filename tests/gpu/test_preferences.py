"""Preferences on a GPU: the numbers of the CPU, and a policy in half precision that begins as its own reference."""

import math

import pytest

from tests.tiny.models import tiny_model
from tests.tiny.preferences import FixedReference, tiny_objective, uneven_pairs
from tests.tiny.training import largest_difference, tiny_trainer, weights
from tunesmith.data.collators import build_collator
from tunesmith.models.segments import SEGMENTS
from tunesmith.training.monitoring.log import LOG_FILE, read_log
from tunesmith.training.run import run_training

pytestmark = pytest.mark.gpu
KINDS = {"dpo": "pairs", "kto": "feedback"}


def train(folder, stage, device_type, *, layout, attention, batch_size):
    model = tiny_model("llama")
    model.set_attn_implementation(attention)
    reference = FixedReference(tiny_model("llama", seed=4))
    reference.model.to(device_type)
    trainer = tiny_trainer(
        folder,
        uneven_pairs(16),
        model=model,
        objective=tiny_objective(model, stage, reference=reference, pref_beta=0.4),
        collator=build_collator(layout, kind=KINDS[stage], pad_token_id=417),
        use_cpu=device_type == "cpu",
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=8 // batch_size,
        learning_rate=0.1,
    )
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    return {name: value.cpu() for name, value in weights(trainer.model).items()}, losses


@pytest.mark.parametrize("stage", KINDS)
@pytest.mark.parametrize(("layout", "attention", "batch_size"), [("padded", "sdpa", 8), ("flat", SEGMENTS, 2)])
def test_layouts_and_accumulation_train_the_weights_of_the_cpu(tmp_path, device, stage, layout, attention, batch_size):
    expected = train(tmp_path / "cpu", stage, "cpu", layout="padded", attention="sdpa", batch_size=8)
    found = train(tmp_path / "here", stage, device.type, layout=layout, attention=attention, batch_size=batch_size)
    assert found[1] == pytest.approx(expected[1], abs=1e-4)
    assert largest_difference(found[0], expected[0]) < 1e-4


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_a_policy_begins_as_its_reference_in_the_precision_of_the_device(tmp_path, run_on_device, tuning):
    """Rounding must not pass for a difference; the run checks it before its first step, and the first loss is ln 2."""
    settings = {"stage": "dpo", "dataset": "pairs", "finetuning_type": tuning, "logging_steps": 1, "max_steps": 2}
    run_training(run_on_device(**settings, save_strategy="no"))
    first = next(line for line in read_log(tmp_path / "out" / LOG_FILE) if "loss" in line)
    assert first["loss"] == pytest.approx(math.log(2), abs=0.02)
