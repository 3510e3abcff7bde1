"""Padded, flat and packed batches of the same rows train the same weights."""

import pytest

from tests.tiny.models import tiny_model
from tests.tiny.training import largest_difference, tiny_trainer, uneven_rows, weights
from tunesmith.models.segments import SEGMENTS


def train(folder, rows, *, layout, attention, **settings):
    model = tiny_model("llama")
    model.set_attn_implementation(attention)
    trainer = tiny_trainer(folder, rows, model=model, layout=layout, **settings)
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    return weights(trainer.model), losses


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
    return train(
        tmp_path_factory.mktemp("padded"),
        uneven_rows(20),
        layout="padded",
        attention="sdpa",
        per_device_train_batch_size=8,
    )


@pytest.mark.parametrize("attention", ["sdpa", "eager", SEGMENTS])
@pytest.mark.parametrize("layout", ["padded", "flat"])
def test_layouts_and_attentions_train_the_same_weights(tmp_path, padded, layout, attention):
    found, losses = train(tmp_path, uneven_rows(20), layout=layout, attention=attention, per_device_train_batch_size=8)
    assert losses == pytest.approx(padded[1], abs=1e-5)
    assert largest_difference(found, padded[0]) < 1e-5


@pytest.mark.parametrize("layout", ["padded", "flat"])
def test_packed_rows_train_the_same_weights(tmp_path, padded, layout):
    """Eight rows a step, packed two by two: the same rows in the same steps."""
    rows = uneven_rows(20)
    packs = [rows[start : start + 2] for start in range(0, 20, 2)]
    attention = SEGMENTS if layout == "flat" else "sdpa"
    found, losses = train(tmp_path, packs, layout=layout, attention=attention, per_device_train_batch_size=4)
    assert losses == pytest.approx(padded[1], abs=1e-5)
    assert largest_difference(found, padded[0]) < 1e-5
