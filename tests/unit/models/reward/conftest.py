"""Reward models as runs load them."""

from dataclasses import replace

import pytest
import torch

from tunesmith.models import LoadedModel, load_model, load_tokenizer
from tunesmith.models.reward import set_scoring_pad

IDS = torch.tensor([[5, 9, 200, 31, 4], [7, 8, 11, 2, 0]])  # the second text ends in its end marker, 2
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
LAST = torch.tensor([4, 8])


@pytest.fixture
def load_reward(run_config):
    """Load a reward model from a few settings."""

    def load(*, is_trainable: bool = True, **settings: object) -> LoadedModel:
        config = run_config(**settings)
        config = replace(config, objective=replace(config.objective, stage="rm"))
        tokenizer = load_tokenizer(config.model)
        set_scoring_pad(tokenizer)
        return load_model(config, tokenizer, is_trainable=is_trainable)

    return load


@pytest.fixture
def scores_of():
    """Return what a model gives for two texts of different lengths."""
    from tunesmith.models.reward import resolve_score_head

    def scores(model):
        with torch.no_grad():
            head, inputs = resolve_score_head(model), {"input_ids": IDS, "attention_mask": MASK}
            return head.score(model.eval(), inputs, LAST)[0]

    return scores
