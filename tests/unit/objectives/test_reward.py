import math

import numpy as np
import pytest
import torch
from torch import nn

from tests.tiny.preferences import uneven_pairs
from tunesmith.data.batches import BOOKKEEPING_KEYS
from tunesmith.data.collators import build_collator
from tunesmith.objectives.reward import RewardObjective

ROWS = uneven_pairs(4)


class TokenValues(nn.Module):
    """A reward model whose score of a sequence is a number that belongs to its last token."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.values = nn.Embedding(420, 1)


class LastToken:
    """Scores sequences by that number; says that a router had a loss of 3."""

    def score(self, model, inputs, last_positions):
        assert set(inputs) <= {"input_ids", "attention_mask", "position_ids"}
        last = inputs["input_ids"].flatten()[last_positions]
        return model.values(last).squeeze(-1), {"aux_loss": torch.tensor(3.0)}


@pytest.fixture
def model():
    return TokenValues().train()


def batch_of(rows=ROWS):
    batch = build_collator("padded", kind="pairs", pad_token_id=417)(rows)
    return {key: value for key, value in batch.items() if key not in BOOKKEEPING_KEYS}


def scores_of(model, row):
    """Scores of chosen and rejected sequence, by their last tokens."""
    last = torch.tensor([int(row["input_ids"][row["chosen_end"] - 1]), int(row["input_ids"][-1])])
    return model.values(last).flatten().tolist()


def mean(found, name):
    return (found.means[name].total / found.means[name].count).item()


def test_the_loss_is_that_of_the_difference_of_scores_less_the_margin(model):
    found = RewardObjective(LastToken()).compute(model, batch_of())
    pairs = [scores_of(model, row) for row in ROWS]
    margins = [row["signal"] for row in ROWS]
    expected = sum(math.log1p(math.exp(-(c - r - m))) for (c, r), m in zip(pairs, margins, strict=True))
    assert 1.0 in margins
    assert found.total.item() == pytest.approx(expected, abs=1e-5)
    assert found.items == 4
    assert mean(found, "accuracy") == sum(c > r for c, r in pairs) / 4
    assert mean(found, "margin") == pytest.approx(sum(c - r for c, r in pairs) / 4, abs=1e-6)
    assert mean(found, "rewards/chosen") == pytest.approx(sum(c for c, _ in pairs) / 4, abs=1e-6)
    assert mean(found, "rewards/rejected") == pytest.approx(sum(r for _, r in pairs) / 4, abs=1e-6)


def test_centring_and_routers_are_for_training_alone(model):
    plain = RewardObjective(LastToken()).compute(model, batch_of()).total
    objective = RewardObjective(LastToken(), center_coefficient=0.5, router_loss_weight=0.1)
    centred = objective.compute(model, batch_of()).total
    expected = sum(0.5 * sum(scores_of(model, row)) ** 2 for row in ROWS) + 0.1 * 3.0 * 4
    assert (centred - plain).item() == pytest.approx(expected, abs=1e-5)
    model.eval()
    assert objective.compute(model, batch_of()).total == plain


def test_nothing_is_measured_beforehand_and_fillers_count_for_nothing(model):
    objective = RewardObjective(LastToken())
    assert objective.measure(model, iter(())).means == {}
    assert not objective.loss_is_per_token
    silent = {**ROWS[0], "trained_spans": np.zeros(0, dtype=np.int32)}
    found = objective.compute(model, batch_of([silent]))
    assert (found.total.item(), found.items.item(), objective.count_items(batch_of([silent])).item()) == (0.0, 0, 0)
    both = objective.compute(model, batch_of([ROWS[1], silent]))
    torch.testing.assert_close(both.total, objective.compute(model, batch_of([ROWS[1]])).total)
    assert both.means["accuracy"].count == 1
