"""Settings of what is learnt."""

from dataclasses import dataclass
from typing import Literal, get_args

from tunesmith.config.constraints import FractionBelowOne, NonNegativeFloat, PositiveInt

Stage = Literal["pt", "sft", "rm", "dpo", "kto"]
STAGES: tuple[str, ...] = get_args(Stage)
"""Stages that can be run."""

PAIR_STAGES = ("rm", "dpo")
"""Stages that learn from a prompt with two completions, of which one is preferred."""

COMPLETION_STAGES = (*PAIR_STAGES, "kto")
"""Stages whose loss is of whole completions rather than of tokens."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """Which training stage this is, and the details of its loss."""

    stage: Stage = "sft"
    """What is learnt: `pt` plain text (continued pre-training), `sft` the answers of conversations, `rm` to score
    answers as people rank them (a reward model), `dpo` which of two answers is preferred, `kto` which answers are good
    and which are not.

    Picks the section `<stage>_args` of a file that holds several."""

    label_smoothing_factor: FractionBelowOne = 0.0
    """Share of the target probability spread evenly over the vocabulary.

    0.1 makes the model less sure of itself. Raises the loss that is reported."""

    z_loss: NonNegativeFloat = 0.0
    """Weight of the squared log of the softmax denominator, added to the loss.

    1e-4 keeps the logits from drifting in long runs. Costs nothing."""

    head_chunk_tokens: Literal["auto"] | PositiveInt = "auto"
    """Labelled positions whose logits are in memory at a time.

    Only for machines where `auto` runs out of memory (lower it) or leaves the processor idle (raise it). The loss
    does not depend on it."""
