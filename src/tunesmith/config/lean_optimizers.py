"""Settings of optimizers that need less memory, or that treat parameters apart; a part of the training group."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tunesmith.config.constraints import Fraction, NonNegativeInt, PositiveFloat, PositiveInt, Range, ScalarMapping

SPECIAL_OPTIMIZERS = ("use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon")
"""Switches of which one at most can be on; each is an optimizer."""


@dataclass(frozen=True, kw_only=True)
class LeanOptimizerSettings:
    """Optimizers beyond the list of `optim`."""

    learning_rate_groups: ScalarMapping | None = None
    """Learning rates of some parameters: `pattern: rate`, the first pattern found in a parameter's name counts.

    A pattern is a regular expression, or one of the words `embeddings` (with the output head), `adapters` and
    `vision_tower`. Others learn with `learning_rate`, and all follow the same schedule."""

    optimizer_in_backward: bool = False
    """Update each parameter as soon as its gradient is there, and free the gradient.

    Saves the memory of all gradients but one, 4 bytes per trained weight. Needs `gradient_accumulation_steps: 1` and
    `max_grad_norm: 0`, since there is no moment at which all gradients exist, and one process."""

    use_galore: bool = False
    """Keep the optimizer's means of large matrices in a subspace of their gradients (GaLore).

    Full tuning with a fraction of the optimizer memory; a little slower. `optim` chooses the kind of Adam or Adafactor
    underneath."""

    galore_target: tuple[str, ...] = ("all",)
    """Linear layers with a projection, by parts of their names; `all` is every linear layer but the output head."""

    galore_rank: PositiveInt = 16
    """Dimensions of the subspace. 128 and more for pre-training."""

    galore_update_interval: PositiveInt = 200
    """Steps between two choices of the subspace, each of which decomposes every matrix."""

    galore_scale: PositiveFloat = 2.0
    """Factor of projected updates."""

    galore_proj_type: Literal["std", "reverse_std", "right", "left", "full"] = "std"
    """Sides of a matrix that are projected: the shorter (`std`), the longer, one of them always, or both."""

    galore_layerwise: bool = False
    """The same as `optimizer_in_backward: true`, under LLaMA-Factory's name."""

    use_apollo: bool = False
    """Learn a step size for each channel in a small random space instead of one for each weight (APOLLO).

    Needs even less memory than GaLore and no decompositions."""

    apollo_target: tuple[str, ...] = ("all",)
    """Linear layers that are treated like that, by parts of their names; `all` is every one but the output head."""

    apollo_rank: PositiveInt = 16
    """Dimensions of the small space."""

    apollo_update_interval: PositiveInt = 200
    """Steps between two choices of the space."""

    apollo_scale: PositiveFloat = 32.0
    """Factor of the step sizes: about the square root of the width divided by the rank."""

    apollo_proj: Literal["svd", "random"] = "random"
    """How the space is chosen. `random` costs nothing and does as well."""

    apollo_proj_type: Literal["std", "right", "left"] = "std"
    """Side of a matrix that is projected: the shorter, or always the same."""

    apollo_scale_type: Literal["channel", "tensor"] = "channel"
    """One step size for each channel, or for each matrix. `tensor` with rank 1 is APOLLO-Mini."""

    apollo_layerwise: bool = False
    """The same as `optimizer_in_backward: true`, under LLaMA-Factory's name."""

    apollo_scale_front: bool = False
    """Limit the growth of an update's length before it is scaled rather than after."""

    use_badam: bool = False
    """Train one block of layers after the other, with Adam (BAdam): optimizer memory for one block only.

    Embedding and output head stay as they are."""

    badam_mode: Literal["layer", "ratio"] = "layer"
    """Blocks are whole layers, or a share of the weights of every matrix."""

    badam_start_block: NonNegativeInt | None = None
    """First block; chosen by `badam_switch_mode` when not set."""

    badam_switch_mode: Literal["ascending", "descending", "random", "fixed"] = "ascending"
    """Order of the blocks."""

    badam_switch_interval: Annotated[int, Range(-1)] = 50
    """Steps spent on one block; -1 never changes it."""

    badam_update_ratio: Fraction = 0.05
    """Share of the weights in `badam_mode: ratio`."""

    badam_mask_mode: Literal["adjacent", "scatter"] = "adjacent"
    """Whether the weights of `badam_mode: ratio` lie side by side or anywhere."""

    badam_verbose: Annotated[int, Range(0, 2)] = 0
    """How much the log says of each change of the block."""

    use_adam_mini: bool = False
    """Keep one second mean for each attention head or neuron instead of one for each weight (Adam-mini).

    Half of Adam's memory. For full tuning and `freeze`."""

    use_muon: bool = False
    """Take steps of orthogonal matrices (Muon) for the weights of layers, and AdamW for everything else.

    Often needs fewer steps in pre-training; the step has the size of AdamW's, so that the same learning rate fits."""
