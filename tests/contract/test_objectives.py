"""Every registered objective: a sum that can be differentiated, and a count that is known beforehand."""

from typing import get_args, get_type_hints

import pytest
import torch

from tests.tiny.models import tiny_model
from tests.tiny.preferences import FixedReference, tiny_objective, uneven_pairs
from tests.tiny.tokenizers import byte_level_tokenizer
from tests.tiny.training import uneven_rows
from tunesmith.config.objective import ObjectiveConfig
from tunesmith.data.batches import BOOKKEEPING_KEYS
from tunesmith.data.collators import build_collator
from tunesmith.models.reward import build_reward_model
from tunesmith.objectives.registry import OBJECTIVES

STAGES = sorted(OBJECTIVES)
KINDS = {"rm": "pairs", "dpo": "pairs", "kto": "feedback"}


@pytest.fixture
def stage(request):
    return request.param


@pytest.fixture
def model(stage):
    model = tiny_model("llama")
    return (build_reward_model(model, byte_level_tokenizer()) if stage == "rm" else model).train()


@pytest.fixture
def objective(model, stage):
    return tiny_objective(model, stage, reference=FixedReference(tiny_model("llama", seed=4)))


def batch_of(stage, layout="padded", rows=slice(4), *, silent=False):
    """What the trainer hands to an objective: a batch without bookkeeping, with the measurement of its step."""
    every = uneven_pairs(4, seed=3) if stage in KINDS else uneven_rows(4, seed=3)
    chosen = [{**row, "trained_spans": row["trained_spans"][: 0 if silent else None]} for row in every[rows]]
    batch = build_collator(layout, kind=KINDS.get(stage, "single"), pad_token_id=417)(chosen)
    kept = {key: value for key, value in batch.items() if key not in BOOKKEEPING_KEYS}
    return {**kept, "step_means": {"kl": torch.tensor(0.1)}} if stage == "kto" else kept


def gradients(model, total):
    model.zero_grad()
    total.backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_every_stage_of_the_settings_has_an_objective():
    assert set(get_args(get_type_hints(ObjectiveConfig)["stage"])) == set(OBJECTIVES)


@pytest.mark.parametrize("layout", ["padded", "flat"])
@pytest.mark.parametrize("stage", STAGES, indirect=True)
def test_the_total_is_differentiable_and_the_count_is_the_one_announced(objective, model, stage, layout):
    batch = batch_of(stage, layout)
    loss = objective.compute(model, batch)
    assert loss.total.shape == loss.items.shape == ()
    assert loss.items.item() == objective.count_items(batch).item() > 0
    assert not loss.items.is_floating_point()
    found = gradients(model, loss.total)
    assert all(torch.isfinite(each).all() for each in found)
    assert any(each.abs().sum() > 0 for each in found)
    assert not any(value.requires_grad for value in loss.metrics.values())
    assert not any(mean.total.requires_grad for mean in loss.means.values())


@pytest.mark.parametrize("stage", STAGES, indirect=True)
def test_totals_and_counts_of_parts_add_up_to_those_of_the_whole(objective, model, stage):
    parts = [batch_of(stage, rows=slice(4)), batch_of(stage, rows=slice(1)), batch_of(stage, rows=slice(1, 4))]
    whole, first, rest = (objective.compute(model, part) for part in parts)
    torch.testing.assert_close(first.total + rest.total, whole.total, atol=1e-4, rtol=1e-5)
    assert first.items + rest.items == whole.items
    assert list(first.means) == list(rest.means) == list(whole.means)
    for name, mean in whole.means.items():
        torch.testing.assert_close(first.means[name].total + rest.means[name].total, mean.total, atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(first.means[name].count + rest.means[name].count, mean.count)


@pytest.mark.parametrize("layout", ["padded", "flat"])
@pytest.mark.parametrize("stage", STAGES, indirect=True)
def test_a_batch_of_fillers_is_a_loss_of_zero_that_can_be_differentiated(objective, model, stage, layout):
    batch = batch_of(stage, layout, silent=True)
    loss = objective.compute(model, batch)
    assert (loss.total.item(), loss.items.item(), objective.count_items(batch).item()) == (0.0, 0, 0)
    assert all(each.abs().sum() == 0 for each in gradients(model, loss.total))
    assert all((mean.total.item(), mean.count.item()) == (0.0, 0) for mean in loss.means.values())


@pytest.mark.parametrize("stage", STAGES, indirect=True)
def test_what_is_measured_of_a_step_is_measured_of_its_parts(objective, model, stage):
    with torch.no_grad():
        whole = objective.measure(model, [batch_of(stage)]).means
        parts = objective.measure(model, [batch_of(stage, rows=slice(1)), batch_of(stage, rows=slice(1, 4))]).means
    assert list(whole) == list(parts) == (["kl"] if stage == "kto" else [])
    for name in whole:
        torch.testing.assert_close(parts[name].total, whole[name].total, atol=1e-4, rtol=1e-5)
        assert parts[name].count == whole[name].count
