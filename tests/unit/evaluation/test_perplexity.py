import math

import pytest
import torch
from torch import nn

from tunesmith.evaluation.perplexity import measure_loss
from tunesmith.objectives.base import LossSum, Measured


class ListedLoss:
    """An objective whose batches hold their own sums."""

    def count_items(self, batch):
        return batch["items"]

    def measure(self, model, batches):
        return Measured()

    def compute(self, model, batch):
        assert not model.training
        assert not torch.is_grad_enabled()
        metrics = {"correct": batch["correct"]} if "correct" in batch else {}
        return LossSum(total=batch["total"], items=batch["items"], metrics=metrics)


def batch(total, items, correct=None):
    entries = {"total": torch.tensor(total), "items": torch.tensor(items)}
    return entries if correct is None else {**entries, "correct": torch.tensor(correct)}


def measure(batches, model=None):
    return measure_loss(model or nn.Linear(1, 1), batches, ListedLoss(), prepare_inputs=dict)


def test_the_mean_is_over_items_not_over_batches():
    result = measure([batch(4.0, 2, 1), batch(1.0, 8, 7)])
    assert result.loss == pytest.approx(0.5)  # 5 / 10; the mean of the batch means would be 1.06
    assert result.perplexity == pytest.approx(math.exp(0.5))
    assert result.accuracy == pytest.approx(0.8)
    assert result.items == 10


def test_the_model_is_put_back_into_training():
    model = nn.Linear(1, 1).train()
    measure([batch(1.0, 1)], model)
    assert model.training


def test_an_objective_that_counts_no_right_tokens_has_no_accuracy():
    assert measure([batch(1.0, 1)]).accuracy is None


def test_batches_without_items_are_nothing():
    assert measure([batch(0.0, 0, 0), batch(3.0, 2, 1)]).loss == pytest.approx(1.5)


def test_an_empty_set_has_no_loss():
    result = measure([])
    assert math.isnan(result.loss)
    assert math.isnan(result.perplexity)
    assert result.accuracy is None
    assert result.items == 0


def test_a_hopeless_model_has_infinite_perplexity():
    assert measure([batch(1e6, 1)]).perplexity == math.inf


def test_single_tokens_are_not_lost_among_millions():
    # In float32, 2**24 + 1 is 2**24.
    result = measure([batch(0.0, 2**24, 0), *[batch(0.0, 1, 1)] * 3])
    assert result.items == 2**24 + 3
    assert result.accuracy == pytest.approx(3 / (2**24 + 3), rel=1e-9)


def test_batches_are_prepared_before_the_objective_sees_them():
    prepared = []

    def prepare(entries):
        prepared.append(entries["row_ids"])
        return {key: value for key, value in entries.items() if key != "row_ids"}

    measure_loss(nn.Linear(1, 1), [{**batch(1.0, 1), "row_ids": 7}], ListedLoss(), prepare)
    assert prepared == [7]
