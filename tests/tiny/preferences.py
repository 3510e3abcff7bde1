"""Uneven pairs and ratings, and objectives over toy models, without files or configuration."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tunesmith.config.objective import ObjectiveConfig
from tunesmith.config.preference import PreferenceConfig
from tunesmith.data.batches import PairExample
from tunesmith.models.heads import resolve_head
from tunesmith.models.reward import resolve_score_head
from tunesmith.objectives.base import Objective
from tunesmith.objectives.completions import CompletionScorer
from tunesmith.objectives.registry import ObjectiveParts, build_objective


def uneven_pairs(num_rows: int, *, seed: int = 0, vocab_size: int = 420) -> list[PairExample]:
    """Prompts of 2 to 9 tokens with two completions of 1 to 12; every third row's signal is 1, the others' is 0."""
    rng = np.random.default_rng(seed)
    rows: list[PairExample] = []
    for row in range(num_rows):
        prompt, first, second = (int(rng.integers(low, high)) for low, high in ((2, 10), (1, 13), (1, 13)))
        ends = [prompt, prompt + first, prompt + first + second]
        rows.append(
            PairExample(
                input_ids=rng.integers(3, vocab_size, ends[2]).astype(np.int32),
                trained_spans=np.array([ends[0], ends[1], ends[1], ends[2]], dtype=np.int32),
                row_id=row,
                prompt_end=ends[0],
                chosen_end=ends[1],
                signal=float(row % 3 == 0),
            )
        )
    return rows


class FixedReference:
    """Another model of the same shape, which nothing trains."""

    equals_policy_at_start = True

    def __init__(self, model: nn.Module, ld_alpha: float | None = None) -> None:
        self.model = copy.deepcopy(model).requires_grad_(False).eval()
        self.scorer = CompletionScorer(resolve_head(self.model), ld_alpha=ld_alpha)

    def describe(self) -> str:
        return "a fixed copy"

    def completion_log_probabilities(self, model: nn.Module, batch: Any) -> Tensor:
        with torch.no_grad():
            return self.scorer.score(self.model, batch).log_probabilities


def tiny_objective(model: nn.Module, stage: str = "dpo", *, reference: Any = None, **settings: Any) -> Objective:
    """Build the objective of a stage over a toy model; the reference is a copy of the model as it is now."""
    preference = PreferenceConfig(**settings)
    if stage == "rm":
        return build_objective(
            ObjectiveParts(
                config=ObjectiveConfig(stage=stage),
                preference=preference,
                reward_scorer=resolve_score_head(model),
                model_settings=model.config.to_dict(),
            )
        )
    return build_objective(
        ObjectiveParts(
            config=ObjectiveConfig(stage=stage, head_chunk_tokens=8),  # type: ignore[arg-type]
            preference=preference,
            head=resolve_head(model),
            reference=reference or FixedReference(model, preference.ld_alpha),
            kto_weights=(1.5, 0.75),
            model_settings=model.config.to_dict(),
        )
    )
