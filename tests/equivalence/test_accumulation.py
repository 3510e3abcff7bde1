"""Any split of the same rows into micro-batches trains the same weights."""

import pytest

from tests.tiny.models import tiny_model
from tests.tiny.training import largest_difference, tiny_trainer, uneven_rows, weights


def train(tmp_path, rows, **settings):
    trainer = tiny_trainer(tmp_path, rows, model=tiny_model("llama"), **settings)
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    return weights(trainer.model), losses


# 20 rows in steps of 8: the last window is short (4 rows).
SPLITS = [(8, 1), (4, 2), (2, 4), (1, 8)]


@pytest.fixture(scope="module")
def whole_batches(tmp_path_factory):
    return train(tmp_path_factory.mktemp("whole"), uneven_rows(20), per_device_train_batch_size=8)


@pytest.mark.parametrize(("rows_at_once", "accumulation"), SPLITS[1:])
def test_splits_train_the_same_weights_and_log_the_same_loss(tmp_path, whole_batches, rows_at_once, accumulation):
    expected, expected_losses = whole_batches
    found, losses = train(
        tmp_path,
        uneven_rows(20),
        per_device_train_batch_size=rows_at_once,
        gradient_accumulation_steps=accumulation,
    )
    assert len(losses) == 3
    assert losses == pytest.approx(expected_losses, abs=1e-5)
    assert largest_difference(found, expected) < 1e-5


def test_the_test_would_see_a_mean_of_means(tmp_path, whole_batches):
    """Rows are uneven enough that dividing each micro-batch by its own items moves the weights elsewhere."""
    trainer = tiny_trainer(tmp_path, uneven_rows(20), per_device_train_batch_size=2, gradient_accumulation_steps=4)
    right = trainer.compute_loss
    trainer.compute_loss = lambda model, inputs, return_outputs=False, num_items_in_batch=None: (
        right(model, inputs, return_outputs, None) / 4
    )
    trainer.train()
    assert largest_difference(weights(trainer.model), whole_batches[0]) > 1e-3
