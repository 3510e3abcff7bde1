import math

import pytest
import torch

from tests.tiny.models import tiny_model
from tests.tiny.preferences import FixedReference, tiny_objective, uneven_pairs
from tests.unit.objectives.test_preference import compute, mean, slow_log_probabilities
from tunesmith.config.preference import PreferenceConfig
from tunesmith.data.batches import BOOKKEEPING_KEYS
from tunesmith.data.collators import build_collator
from tunesmith.data.collators.completions import split_pair
from tunesmith.objectives.feedback import resolve_weights

ROWS = uneven_pairs(6)  # rows 0 and 3 are desirable


@pytest.fixture(scope="module")
def models():
    return tiny_model("llama").train(), tiny_model("llama", seed=4)


def batch_of(rows=ROWS, layout="padded"):
    batch = build_collator(layout, kind="feedback", pad_token_id=417)(rows)
    return {key: value for key, value in batch.items() if key not in BOOKKEEPING_KEYS}


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def ratios_of(models, place):
    """Log-ratios of the completions (0) or of the mismatched ones (1)."""
    sequences = [split_pair(row)[place] for row in ROWS]
    return [
        sum(slow_log_probabilities(models[0], each)) - sum(slow_log_probabilities(models[1], each))
        for each in sequences
    ]


def test_the_loss_is_that_of_log_probabilities_taken_one_by_one(models):
    model, other = models
    objective = tiny_objective(model, "kto", reference=FixedReference(other), pref_beta=0.4)
    found = compute(objective, model, batch_of())
    kl = max(0.0, sum(ratios_of(models, 1)) / len(ROWS))
    own = ratios_of(models, 0)
    total = sum(
        1.5 * (1 - sigmoid(0.4 * (ratio - kl))) if row["signal"] else 0.75 * (1 - sigmoid(0.4 * (kl - ratio)))
        for row, ratio in zip(ROWS, own, strict=True)
    )
    assert found.total.item() == pytest.approx(total, abs=1e-4)
    assert found.items == 6
    assert mean(found, "kl") == pytest.approx(kl, abs=1e-4)
    assert mean(found, "rewards/chosen") == pytest.approx(0.4 * (own[0] + own[3]) / 2, abs=1e-4)
    assert found.means["rewards/rejected"].count == 4
    assert found.means["logits/chosen"].count == sum(
        ROWS[row]["chosen_end"] - ROWS[row]["prompt_end"] for row in (0, 3)
    )


def test_fine_tuning_on_the_side_is_for_desirable_completions(models):
    model, _ = models
    plain, with_side = (compute(tiny_objective(model, "kto", pref_ftx=w), model, batch_of()).total for w in (0.0, 2.0))
    values = [slow_log_probabilities(model, split_pair(ROWS[row])[0]) for row in (0, 3)]
    expected = -2.0 * sum(sum(each) / len(each) for each in values)
    assert (with_side - plain).item() == pytest.approx(expected, abs=1e-4)


def test_a_batch_of_one_kind_or_of_one_row_is_fine(models):
    model, other = models
    objective = tiny_objective(model, "kto", reference=FixedReference(other))
    for rows in ([ROWS[0]], [ROWS[1]], [ROWS[0], ROWS[3]]):
        model.zero_grad()
        found = compute(objective, model, batch_of(rows))
        found.total.backward()
        assert torch.isfinite(found.total)
        assert any(parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def test_the_estimate_has_no_gradient(models):
    model, other = models
    objective = tiny_objective(model, "kto", reference=FixedReference(other))
    with torch.no_grad():
        measured = objective.measure(model, [batch_of(ROWS[:2]), batch_of(ROWS[2:])])
    assert measured.means["kl"].count == 6
    assert measured.means["kl"].total.item() == pytest.approx(sum(ratios_of(models, 1)), abs=1e-4)
    assert not measured.means["kl"].total.requires_grad


@pytest.mark.parametrize(
    ("chosen", "rejected", "expected"),
    [
        (1.0, 1.0, (1.0, 1.0)),
        (2.0, 0.5, (2.0, 0.5)),
        ("auto", "auto", (3.0, 1.0)),
        ("auto", 2.0, (6.0, 2.0)),
        (3.0, "auto", (3.0, 1.0)),
    ],
)
def test_automatic_weights_make_both_kinds_weigh_the_same(chosen, rejected, expected):
    config = PreferenceConfig(kto_chosen_weight=chosen, kto_rejected_weight=rejected)
    found = resolve_weights(config, num_desirable=10, num_undesirable=30)
    assert found == expected
    if "auto" in (chosen, rejected):
        assert found[0] * 10 == found[1] * 30


def test_automatic_weights_of_one_kind_alone_stay_finite():
    config = PreferenceConfig(kto_chosen_weight="auto", kto_rejected_weight="auto")
    assert resolve_weights(config, num_desirable=0, num_undesirable=4) == (4.0, 1.0)
