"""Every registered objective: a sum that can be differentiated, and a count that is known beforehand."""

from typing import get_args, get_type_hints

import pytest
import torch

from tests.tiny.models import tiny_model
from tests.tiny.training import uneven_rows
from tunesmith.config.objective import ObjectiveConfig
from tunesmith.data.batches import BOOKKEEPING_KEYS, IGNORE_INDEX
from tunesmith.data.collators import build_collator
from tunesmith.models.heads import resolve_head
from tunesmith.objectives.registry import OBJECTIVES, build_objective

STAGES = sorted(OBJECTIVES)


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama").train()


@pytest.fixture
def objective(model, request):
    return build_objective(ObjectiveConfig(stage=request.param), resolve_head(model), model.config.to_dict())


def batch_of(layout, num_rows=4):
    batch = build_collator(layout, pad_token_id=417)(uneven_rows(num_rows, seed=3))
    return {key: value for key, value in batch.items() if key not in BOOKKEEPING_KEYS}


def gradients(model, total):
    model.zero_grad()
    total.backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_every_stage_of_the_settings_has_an_objective():
    assert set(get_args(get_type_hints(ObjectiveConfig)["stage"])) == set(OBJECTIVES)


@pytest.mark.parametrize("layout", ["padded", "flat"])
@pytest.mark.parametrize("objective", STAGES, indirect=True)
def test_the_total_is_differentiable_and_the_count_is_the_one_announced(objective, model, layout):
    batch = batch_of(layout)
    loss = objective.compute(model, batch)
    assert loss.total.shape == loss.items.shape == ()
    assert loss.items.item() == objective.count_items(batch).item() > 0
    assert not loss.items.is_floating_point()
    found = gradients(model, loss.total)
    assert all(torch.isfinite(each).all() for each in found)
    assert any(each.abs().sum() > 0 for each in found)
    assert not any(value.requires_grad for value in loss.metrics.values())


@pytest.mark.parametrize("objective", STAGES, indirect=True)
def test_totals_and_counts_of_parts_add_up_to_those_of_the_whole(objective, model):
    rows, collate = uneven_rows(4, seed=3), build_collator("padded", pad_token_id=417)
    whole, first, rest = (
        objective.compute(model, {k: v for k, v in collate(part).items() if k not in BOOKKEEPING_KEYS})
        for part in (rows, rows[:1], rows[1:])
    )
    torch.testing.assert_close(first.total + rest.total, whole.total, atol=1e-4, rtol=1e-5)
    assert first.items + rest.items == whole.items


@pytest.mark.parametrize("layout", ["padded", "flat"])
@pytest.mark.parametrize("objective", STAGES, indirect=True)
def test_a_batch_without_labels_is_a_loss_of_zero_that_can_be_differentiated(objective, model, layout):
    batch = batch_of(layout, num_rows=2)
    batch["labels"] = torch.full_like(batch["labels"], IGNORE_INDEX)
    loss = objective.compute(model, batch)
    assert (loss.total.item(), loss.items.item(), objective.count_items(batch).item()) == (0.0, 0, 0)
    assert all(each.abs().sum() == 0 for each in gradients(model, loss.total))


@pytest.mark.parametrize("objective", STAGES, indirect=True)
def test_nothing_is_divided(objective, model):
    batch = batch_of("padded", num_rows=1)
    twice = {key: torch.cat([value, value]) for key, value in batch.items()}
    once, doubled = objective.compute(model, batch), objective.compute(model, twice)
    torch.testing.assert_close(doubled.total, 2 * once.total, atol=1e-4, rtol=1e-5)
    assert doubled.items == 2 * once.items
