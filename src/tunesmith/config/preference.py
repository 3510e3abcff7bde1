"""Settings of learning from preferences: stages `rm`, `dpo` and `kto`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from tunesmith.config.constraints import Fraction, NonNegativeFloat, PositiveFloat, Range

PreferenceLoss = Literal[
    "sigmoid",
    "hinge",
    "ipo",
    "robust",
    "kto_pair",
    "orpo",
    "simpo",
    "cpo",
    "exo",
    "apo_zero",
    "apo_down",
    "sppo",
    "bco_pair",
    "discopop",
]
PREFERENCE_LOSSES: tuple[str, ...] = get_args(PreferenceLoss)

REFERENCE_FREE_LOSSES = ("orpo", "simpo", "cpo")
"""Losses that look at the policy alone."""

LOSSES_WITH_SMOOTHING = ("sigmoid", "robust", "cpo", "exo")
"""Losses that `dpo_label_smoothing` is for."""


@dataclass(frozen=True, kw_only=True)
class PreferenceConfig:
    """How preferences are weighed: the loss of pairs and rated completions, and what holds the policy back."""

    pref_loss: tuple[PreferenceLoss, ...] = ("sigmoid",)
    """Loss of stage `dpo`. Several, with commas between them, are added up, see `pref_loss_weights`.

    `sigmoid` is DPO. `orpo`, `simpo` and `cpo` need no reference and so half the work. docs/preference.md says which
    one suits what."""

    pref_loss_weights: tuple[PositiveFloat, ...] = ()
    """Weight of each loss in `pref_loss`, in the same order; 1 each when not set."""

    pref_beta: PositiveFloat = 0.1
    """How dear it is to leave the reference policy: a larger value keeps the model nearer to it.

    0.1 to 0.5 is usual; 2 to 10 for `simpo`. For `orpo` the weight of the preference beside the answers themselves."""

    pref_ftx: NonNegativeFloat = 0.0
    """Weight of the cross entropy of the chosen completion, per token, added to the loss of its pair.

    Keeps the chosen completions from becoming less likely together with the rejected ones. With stage `kto` it is added
    for desirable completions."""

    pref_bco_weight: NonNegativeFloat = 0.0
    """Weight `w` of a binary classifier's loss: the loss becomes `(loss + w * bco_pair) / (1 + w)`."""

    pref_length_normalization: bool = False
    """Take log-probabilities per token rather than of whole completions.

    For losses of log-ratios, so that long completions do not weigh more; `ipo`, `orpo` and `simpo` always do. Wants a
    larger `pref_beta`."""

    dpo_label_smoothing: Annotated[float, Range(0, 0.5, high_open=True)] = 0.0
    """Share of pairs taken to be swapped by mistake: with `sigmoid` and `cpo` for caution, with `robust` to undo it.

    For `exo` the probability left to the rejected completion, above 0."""

    simpo_gamma: NonNegativeFloat = 0.5
    """Margin that `simpo` wants between the completions of a pair."""

    discopop_tau: PositiveFloat = 0.05
    """How sharply `discopop` goes over from the logistic to the exponential loss."""

    ld_alpha: Fraction | None = None
    """Weight of the tokens that only the longer completion of a pair has (LD-DPO); when not set, like all others.

    Below 1 it keeps the model from learning that long is good. For policy and reference alike."""

    kto_chosen_weight: Literal["auto"] | PositiveFloat = 1.0
    """Weight of desirable completions with stage `kto`.

    `auto` makes up for there being fewer of them, so that both kinds weigh the same in all."""

    kto_rejected_weight: Literal["auto"] | PositiveFloat = 1.0
    """Weight of undesirable completions with stage `kto`; `auto` makes up for there being fewer of them."""

    center_rewards_coefficient: NonNegativeFloat = 0.0
    """Weight of a loss that keeps the scores of a reward model around zero, with stage `rm`; 0.01 is usual.

    The loss of pairs fixes differences of scores alone."""


STAGES_OF_SETTINGS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("pref_beta", "pref_ftx"), ("dpo", "kto")),
    **dict.fromkeys(("kto_chosen_weight", "kto_rejected_weight"), ("kto",)),
    "center_rewards_coefficient": ("rm",),
}
"""Stages that look at a setting, where that is not `dpo` alone."""
