"""Learn from single completions that were called good or bad: stage `kto`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from tunesmith.config.preference import PreferenceConfig
from tunesmith.objectives.base import LossSum, Mean, Measured
from tunesmith.objectives.completions import CompletionScorer, CompletionScores, count_items, mean_of
from tunesmith.objectives.losses.preference import kto_loss
from tunesmith.objectives.reference import ReferencePolicy
from tunesmith.objectives.router_loss import weigh_router_loss

KL = "kl"
"""Name of the estimate of how far the policy has moved, over the optimiser step."""


@dataclass(frozen=True, slots=True)
class FeedbackObjective:
    """KTO's loss summed over rated completions.

    The policy's distance from the reference is estimated on mismatched completions: each prompt with the answer to
    another one. It is the mean over a whole optimiser step, on all processes, so that no setting of batch size and
    accumulation changes it, and a micro-batch of one row or of one kind is as good as any. In evaluation it is the
    mean over the set.
    """

    scorer: CompletionScorer
    config: PreferenceConfig
    reference: ReferencePolicy
    desirable_weight: float = 1.0
    undesirable_weight: float = 1.0
    router_loss_weight: float = 0.0

    loss_is_per_token: ClassVar[bool] = False
    measures_its_own_rows: ClassVar[bool] = False

    def count_items(self, batch: Mapping[str, Any]) -> Tensor:
        """Return the number of rated completions."""
        return count_items(batch)

    def measure(self, model: nn.Module, batches: Iterable[Mapping[str, Any]]) -> Measured:
        """Return the mean log-ratio of the mismatched completions."""
        total, rows = torch.zeros(()), torch.zeros(())
        for batch in batches:
            mismatched, weights = batch["mismatched"], batch["item_weights"]
            ratios = self.log_ratios(model, mismatched)
            total += (ratios * weights).sum().cpu()
            rows += weights.sum().cpu()
        return Measured({KL: Mean(total, rows)})

    def compute(self, model: nn.Module, batch: Mapping[str, Any]) -> LossSum:
        """Score the completion of every row and add up the losses."""
        found = self.scorer.score(model, batch, with_statistics=True)
        ratios = self._log_ratios(model, batch, found)
        weights, is_desirable = batch["item_weights"], batch["signals"] > 0.5
        kl = batch["step_means"][KL]
        losses = kto_loss(
            ratios,
            is_desirable,
            kl,
            beta=self.config.pref_beta,
            desirable_weight=self.desirable_weight,
            undesirable_weight=self.undesirable_weight,
        )
        if self.config.pref_ftx:
            losses = losses - self.config.pref_ftx * torch.where(is_desirable, found.mean_log_probabilities, 0.0)
        items = count_items(batch)
        total = (losses * weights).sum()
        if model.training:
            total = total + weigh_router_loss(found.output, items, self.router_loss_weight)
        means = self._means(found, ratios, weights, is_desirable)
        return LossSum(total, items, means={**means, KL: mean_of(kl.clamp(min=0.0) * items, items)})

    def log_ratios(self, model: nn.Module, batch: Mapping[str, Any]) -> Tensor:
        """Return each completion's log-ratio to the reference. Shape [sequences]."""
        return self._log_ratios(model, batch, self.scorer.score(model, batch))

    def _log_ratios(self, model: nn.Module, batch: Mapping[str, Any], found: CompletionScores) -> Tensor:
        with torch.no_grad():
            reference = self.reference.completion_log_probabilities(model, batch)
        return found.log_probabilities - reference

    def _means(self, found: CompletionScores, ratios: Tensor, weights: Tensor, is_desirable: Tensor) -> dict[str, Mean]:
        rewards = self.config.pref_beta * ratios.detach()
        kinds = {"chosen": weights * is_desirable, "rejected": weights * ~is_desirable}
        assert found.mean_logits is not None, "asked for"
        assert found.entropies is not None, "asked for"
        means = {f"rewards/{kind}": mean_of(rewards * chosen, chosen) for kind, chosen in kinds.items()}
        means |= {f"logps/{kind}": mean_of(found.log_probabilities * chosen, chosen) for kind, chosen in kinds.items()}
        for kind, chosen in kinds.items():
            means[f"logits/{kind}"] = mean_of(found.mean_logits * chosen, found.lengths * chosen)
        means["entropy"] = mean_of(found.entropies, found.lengths)
        return means


def resolve_weights(config: PreferenceConfig, *, num_desirable: int, num_undesirable: int) -> tuple[float, float]:
    """Return the weights of desirable and undesirable completions; `auto` makes the rarer kind weigh as much in all.

    Args:
        config: Settings; of two that are `auto` only the rarer kind's differs from 1.
        num_desirable: Rows of the training set.
        num_undesirable: The others.
    """
    counts = {"chosen": max(1, num_desirable), "rejected": max(1, num_undesirable)}
    given: dict[str, float | Literal["auto"]] = {
        "chosen": config.kto_chosen_weight,
        "rejected": config.kto_rejected_weight,
    }
    if given["chosen"] == given["rejected"] == "auto":
        most = max(counts.values())
        return most / counts["chosen"], most / counts["rejected"]
    for kind, other in (("chosen", "rejected"), ("rejected", "chosen")):
        if given[kind] == "auto":
            given[kind] = float(given[other]) * counts[other] / counts[kind]
    return float(given["chosen"]), float(given["rejected"])
