"""All objectives, by the stage that asks for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tunesmith.config.objective import ObjectiveConfig
from tunesmith.config.preference import PreferenceConfig
from tunesmith.models.heads import LanguageHead
from tunesmith.objectives.base import Objective
from tunesmith.objectives.completions import CompletionScorer
from tunesmith.objectives.feedback import FeedbackObjective
from tunesmith.objectives.next_token import NextTokenObjective
from tunesmith.objectives.preference import PreferenceObjective, is_reference_free
from tunesmith.objectives.reference import ReferencePolicy
from tunesmith.objectives.reward import RewardObjective, SequenceScorer
from tunesmith.objectives.router_loss import router_loss_weight


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveParts:
    """What objectives are made of; each takes what it needs."""

    config: ObjectiveConfig
    preference: PreferenceConfig = field(default_factory=PreferenceConfig)
    head: LanguageHead | None = None
    """Output head of a language model; `None` for a reward model."""

    reward_scorer: SequenceScorer | None = None
    """How a reward model scores; `None` for a language model."""

    reference: ReferencePolicy | None = None
    kto_weights: tuple[float, float] = (1.0, 1.0)
    """Of desirable and undesirable completions, see `feedback.resolve_weights`."""

    model_settings: Mapping[str, Any] = field(default_factory=dict)
    """The model's configuration as a mapping (`config.to_dict()`), for what a family adds to the loss."""

    @property
    def chunk_tokens(self) -> int | None:
        """Positions whose logits exist at the same time; `None` to pick by vocabulary and device."""
        return None if self.config.head_chunk_tokens == "auto" else int(self.config.head_chunk_tokens)

    def language_head(self) -> LanguageHead:
        """Return the head, for objectives that cannot do without."""
        assert self.head is not None, "every stage but rm loads a language model"
        return self.head


def build_scorer(config: ObjectiveConfig, preference: PreferenceConfig, head: LanguageHead) -> CompletionScorer:
    """Return what scores completions in a run: the same for the policy and for its reference."""
    parts = ObjectiveParts(config=config, preference=preference, head=head)
    return CompletionScorer(head, parts.chunk_tokens, preference.ld_alpha if config.stage == "dpo" else None)


def _build_next_token(parts: ObjectiveParts) -> NextTokenObjective:
    return NextTokenObjective(
        head=parts.language_head(),
        label_smoothing=parts.config.label_smoothing_factor,
        z_loss=parts.config.z_loss,
        chunk_tokens=parts.chunk_tokens,
        router_loss_weight=router_loss_weight(parts.model_settings),
    )


def _build_preference(parts: ObjectiveParts) -> PreferenceObjective:
    is_free = is_reference_free(parts.preference)
    assert is_free or parts.reference is not None, "made before the objective"
    return PreferenceObjective(
        scorer=build_scorer(parts.config, parts.preference, parts.language_head()),
        config=parts.preference,
        reference=None if is_free else parts.reference,
        router_loss_weight=router_loss_weight(parts.model_settings),
    )


def _build_feedback(parts: ObjectiveParts) -> FeedbackObjective:
    assert parts.reference is not None, "made before the objective"
    desirable, undesirable = parts.kto_weights
    return FeedbackObjective(
        scorer=build_scorer(parts.config, parts.preference, parts.language_head()),
        config=parts.preference,
        reference=parts.reference,
        desirable_weight=desirable,
        undesirable_weight=undesirable,
        router_loss_weight=router_loss_weight(parts.model_settings),
    )


def _build_reward(parts: ObjectiveParts) -> RewardObjective:
    assert parts.reward_scorer is not None, "made with the reward model"
    return RewardObjective(
        scorer=parts.reward_scorer,
        center_coefficient=parts.preference.center_rewards_coefficient,
        router_loss_weight=router_loss_weight(parts.model_settings),
    )


OBJECTIVES: Mapping[str, Callable[[ObjectiveParts], Objective]] = {
    "pt": _build_next_token,
    "sft": _build_next_token,
    "rm": _build_reward,
    "dpo": _build_preference,
    "kto": _build_feedback,
}


def build_objective(parts: ObjectiveParts) -> Objective:
    """Return the objective of a stage; every stage that settings allow has an entry in `OBJECTIVES`."""
    return OBJECTIVES[parts.config.stage](parts)


def needs_reference(config: ObjectiveConfig, preference: PreferenceConfig) -> bool:
    """Return whether the objective of a run compares the policy with a reference."""
    return config.stage == "kto" or (config.stage == "dpo" and not is_reference_free(preference))
