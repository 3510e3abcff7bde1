"""Learn from pairs which of two completions is better: stage `dpo` with its whole family of losses."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tunesmith.config.preference import REFERENCE_FREE_LOSSES, PreferenceConfig
from tunesmith.objectives.base import LossSum, Mean, Measured
from tunesmith.objectives.completions import CompletionScorer, CompletionScores, count_items, mean_of
from tunesmith.objectives.losses import preference as losses
from tunesmith.objectives.reference import ReferencePolicy
from tunesmith.objectives.router_loss import weigh_router_loss

CHOSEN_MEAN, REJECTED_MEAN = "chosen_log_ratio", "rejected_log_ratio"
"""Names of the means over the optimiser step that `kto_pair` compares with."""

REFERENCE, SCORES = "reference_log_probabilities", "completion_scores"
"""Batch keys of what is known before the loss is computed."""


@dataclass(frozen=True, slots=True)
class PairScores:
    """What the losses of pairs look at. Shape [pairs] each."""

    chosen: Tensor
    """Log-ratios of the chosen completions; without a reference their log-probabilities."""

    rejected: Tensor
    chosen_mean: Tensor
    """Log-probabilities of the policy per token."""

    rejected_mean: Tensor
    mean_margins: Tensor
    """What the chosen completion has more of per token."""

    step_means: Mapping[str, Tensor] | None
    """What was measured over the optimiser step, where a loss needs it."""

    @property
    def margins(self) -> Tensor:
        """What the chosen completion has more of."""
        return self.chosen - self.rejected


PairLoss = Callable[[PairScores, PreferenceConfig], Tensor]


def _kto_pair(scores: PairScores, config: PreferenceConfig) -> Tensor:
    assert scores.step_means is not None, "measured before every step"
    return losses.kto_pair_loss(
        scores.chosen,
        scores.rejected,
        beta=config.pref_beta,
        chosen_mean=scores.step_means[CHOSEN_MEAN],
        rejected_mean=scores.step_means[REJECTED_MEAN],
    )


def _orpo(scores: PairScores, config: PreferenceConfig) -> Tensor:
    preference = losses.odds_ratio_loss(scores.chosen_mean, scores.rejected_mean)
    return config.pref_beta * preference - scores.chosen_mean


def _simpo(scores: PairScores, config: PreferenceConfig) -> Tensor:
    return losses.simpo_loss(scores.chosen_mean, scores.rejected_mean, beta=config.pref_beta, gamma=config.simpo_gamma)


def _cpo(scores: PairScores, config: PreferenceConfig) -> Tensor:
    preference = losses.cpo_loss(
        scores.chosen, scores.rejected, beta=config.pref_beta, label_smoothing=config.dpo_label_smoothing
    )
    return preference - scores.chosen_mean


PAIR_LOSSES: Mapping[str, PairLoss] = {
    "sigmoid": lambda scores, config: losses.sigmoid_loss(
        scores.margins, beta=config.pref_beta, label_smoothing=config.dpo_label_smoothing
    ),
    "hinge": lambda scores, config: losses.hinge_loss(scores.margins, beta=config.pref_beta),
    "ipo": lambda scores, config: losses.ipo_loss(scores.mean_margins, beta=config.pref_beta),
    "robust": lambda scores, config: losses.robust_loss(
        scores.margins, beta=config.pref_beta, label_smoothing=config.dpo_label_smoothing
    ),
    "kto_pair": _kto_pair,
    "orpo": _orpo,
    "simpo": _simpo,
    "cpo": _cpo,
    "exo": lambda scores, config: losses.exo_loss(
        scores.margins, beta=config.pref_beta, label_smoothing=config.dpo_label_smoothing
    ),
    "apo_zero": lambda scores, config: losses.apo_zero_loss(scores.chosen, scores.rejected, beta=config.pref_beta),
    "apo_down": lambda scores, config: losses.apo_down_loss(scores.chosen, scores.rejected, beta=config.pref_beta),
    "sppo": lambda scores, config: losses.sppo_loss(scores.chosen, scores.rejected, beta=config.pref_beta),
    "bco_pair": lambda scores, config: losses.bco_pair_loss(scores.chosen, scores.rejected, beta=config.pref_beta),
    "discopop": lambda scores, config: losses.discopop_loss(
        scores.margins, beta=config.pref_beta, tau=config.discopop_tau
    ),
}
"""One loss per pair, by the name in `pref_loss`. Shape [pairs]."""


@dataclass(frozen=True, slots=True)
class PreferenceObjective:
    """The sum over pairs of one or more losses, weighed."""

    scorer: CompletionScorer
    config: PreferenceConfig
    reference: ReferencePolicy | None
    """What log-ratios are taken against; `None` for losses that need none."""

    router_loss_weight: float = 0.0

    loss_is_per_token: ClassVar[bool] = False

    def count_items(self, batch: Mapping[str, Any]) -> Tensor:
        """Return the number of pairs."""
        return count_items(batch)

    @property
    def measures_its_own_rows(self) -> bool:
        """`kto_pair` compares the completions of a step with each other."""
        return "kto_pair" in self.config.pref_loss

    def measure(self, model: nn.Module, batches: Iterable[Mapping[str, Any]]) -> Measured:
        """Return the mean log-ratios of chosen and rejected completions, for the loss that compares with them.

        What the reference says is kept for `compute`. So is what the policy says in evaluation; in training it is
        wanted once more, with its gradient.
        """
        if not self.measures_its_own_rows:
            return Measured()
        parts: list[Mapping[str, Mean]] = []
        kept: list[dict[str, Any]] = []
        for batch in batches:
            found = self.scorer.score(model, batch, with_statistics=not model.training)
            ratios = self._log_ratios(model, batch, found)
            parts.append(self._means_of_ratios(found, ratios, batch))
            kept.append({} if self.reference is None else {REFERENCE: found.log_probabilities - ratios})
            if not model.training:
                kept[-1][SCORES] = replace(found, output=None)
        return Measured({name: _add_up([part[name] for part in parts]) for name in (CHOSEN_MEAN, REJECTED_MEAN)}, kept)

    def compute(self, model: nn.Module, batch: Mapping[str, Any]) -> LossSum:
        """Score both completions of every pair and add up the losses."""
        found = batch.get(SCORES) if not model.training else None
        if found is None:
            found = self.scorer.score(model, batch, with_statistics=True)
        ratios = self._log_ratios(model, batch, found)
        scores = self._pair_scores(found, ratios, self._step_means(found, ratios, batch))
        weights = batch["item_weights"]
        items = count_items(batch)
        total = (self._weigh(scores) * weights).sum()
        if model.training:
            total = total + weigh_router_loss(found.output, items, self.router_loss_weight)
        return LossSum(total, items, means=self._means(found, scores, weights))

    def log_ratios(self, model: nn.Module, batch: Mapping[str, Any]) -> Tensor:
        """Return each completion's log-ratio to the reference. Shape [sequences]."""
        return self._log_ratios(model, batch, self.scorer.score(model, batch))

    def _log_ratios(self, model: nn.Module, batch: Mapping[str, Any], found: CompletionScores) -> Tensor:
        """Return each completion's log-ratio to the reference; without one its log-probability."""
        if self.reference is None:
            return found.log_probabilities
        reference = batch.get(REFERENCE)
        if reference is None:
            with torch.no_grad():
                reference = self.reference.completion_log_probabilities(model, batch)
        return found.log_probabilities - reference

    def _step_means(
        self, found: CompletionScores, ratios: Tensor, batch: Mapping[str, Any]
    ) -> Mapping[str, Tensor] | None:
        """Return what the loss needs to know of the step; from this batch, where it is all of it."""
        if not self.measures_its_own_rows or "step_means" in batch:
            means: Mapping[str, Tensor] | None = batch.get("step_means")
            return means
        reduced: Mapping[str, Tensor] = batch["reduce_means"](self._means_of_ratios(found, ratios, batch))
        return reduced

    def _means_of_ratios(self, found: CompletionScores, ratios: Tensor, batch: Mapping[str, Any]) -> dict[str, Mean]:
        ratios, weights = self._normalized(ratios, found), batch["item_weights"]
        return {
            CHOSEN_MEAN: mean_of(ratios[0::2] * weights, weights),
            REJECTED_MEAN: mean_of(ratios[1::2] * weights, weights),
        }

    def _normalized(self, ratios: Tensor, found: CompletionScores) -> Tensor:
        return ratios / found.lengths.clamp(min=1) if self.config.pref_length_normalization else ratios

    def _pair_scores(
        self, found: CompletionScores, ratios: Tensor, step_means: Mapping[str, Tensor] | None
    ) -> PairScores:
        per_token = ratios / found.lengths.clamp(min=1)
        ratios = self._normalized(ratios, found)
        means = found.mean_log_probabilities
        return PairScores(
            chosen=ratios[0::2],
            rejected=ratios[1::2],
            chosen_mean=means[0::2],
            rejected_mean=means[1::2],
            mean_margins=per_token[0::2] - per_token[1::2],
            step_means=step_means,
        )

    def _weigh(self, scores: PairScores) -> Tensor:
        """Return the loss of each pair. Shape [pairs]."""
        config = self.config
        loss = torch.zeros_like(scores.chosen)
        weights = config.pref_loss_weights or (1.0,) * len(config.pref_loss)
        for name, weight in zip(config.pref_loss, weights, strict=True):
            loss = loss + weight * PAIR_LOSSES[name](scores, config)
        if config.pref_bco_weight:
            classifier = losses.bco_pair_loss(scores.chosen, scores.rejected, beta=config.pref_beta)
            loss = (loss + config.pref_bco_weight * classifier) / (1.0 + config.pref_bco_weight)
        if config.pref_ftx:
            loss = loss - config.pref_ftx * scores.chosen_mean
        return loss

    def _means(self, found: CompletionScores, scores: PairScores, weights: Tensor) -> dict[str, Mean]:
        config = self.config
        shown = found.log_probabilities
        rewards = (scores.chosen, scores.rejected)
        if is_reference_free(config) and set(config.pref_loss) <= {"orpo", "simpo"}:  # they know means alone
            shown, rewards = found.mean_log_probabilities, (scores.chosen_mean, scores.rejected_mean)
        chosen, rejected = (config.pref_beta * values for values in rewards)
        return {
            "rewards/chosen": mean_of(chosen * weights, weights),
            "rewards/rejected": mean_of(rejected * weights, weights),
            "rewards/accuracies": mean_of((chosen > rejected) * weights, weights),
            "rewards/margins": mean_of((chosen - rejected) * weights, weights),
            "logps/chosen": mean_of(shown[0::2] * weights, weights),
            "logps/rejected": mean_of(shown[1::2] * weights, weights),
            **token_means(found),
        }


def _add_up(parts: Sequence[Mean]) -> Mean:
    """Return the mean over several batches, on the CPU; of none, a mean of nothing."""
    zero = torch.zeros(())
    return Mean(sum((part.total.cpu() for part in parts), zero), sum((part.count.cpu() for part in parts), zero))


def is_reference_free(config: PreferenceConfig) -> bool:
    """Return whether no loss of stage `dpo` looks at a reference policy."""
    return set(config.pref_loss) <= set(REFERENCE_FREE_LOSSES) and not config.pref_bco_weight


def token_means(found: CompletionScores) -> dict[str, Mean]:
    """Return mean logits of chosen and rejected completions, and the entropy, over tokens."""
    assert found.mean_logits is not None, "asked for"
    assert found.entropies is not None, "asked for"
    return {
        "logits/chosen": mean_of(found.mean_logits[0::2], found.lengths[0::2]),
        "logits/rejected": mean_of(found.mean_logits[1::2], found.lengths[1::2]),
        "entropy": mean_of(found.entropies, found.lengths),
    }
