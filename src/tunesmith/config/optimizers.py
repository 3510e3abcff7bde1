"""What the optimizers of transformers take: which of our settings, and which names in `optim_args`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Detail = Literal["number", "whole", "switch", "true"]
"""Sort of value: a number, a whole number, true or false, or nothing but true."""

_BETAS = ("adam_beta1", "adam_beta2")
_ADAM = (*_BETAS, "adam_epsilon")
ADAM_SETTINGS = _ADAM
"""Settings of Adam's running means, which some other optimizers have too."""


@dataclass(frozen=True, slots=True)
class OptimizerInputs:
    """What one optimizer listens to, besides the learning rate and the weight decay."""

    settings: tuple[str, ...] = ()
    """Those of `ADAM_SETTINGS` that it has."""

    details: Mapping[str, Detail] = field(default_factory=dict)
    """Names that `optim_args` may hold."""


_ADEMAMIX = OptimizerInputs(
    _ADAM,
    {
        "beta1": "number",
        "beta2": "number",
        "beta3": "number",
        "alpha": "number",
        "eps": "number",
        "t_alpha": "whole",
        "t_beta3": "whole",
    },
)
_FREE: Mapping[str, Detail] = {"weight_lr_power": "number", "r": "number"}
# `block_size` is left out: transformers hands it over as text, and torchao wants a number.
_TORCHAO = OptimizerInputs(_ADAM, {"bf16_stochastic_round": "switch"})

OPTIMIZER_INPUTS: Mapping[str, OptimizerInputs] = {
    "adamw_torch": OptimizerInputs(_ADAM),
    "adamw_torch_fused": OptimizerInputs(_ADAM),
    "adafactor": OptimizerInputs(),
    "sgd": OptimizerInputs((), {"momentum": "number", "dampening": "number", "nesterov": "switch"}),
    "adagrad": OptimizerInputs((), {"lr_decay": "number", "eps": "number"}),
    "rmsprop": OptimizerInputs((), {"momentum": "number", "alpha": "number", "eps": "number", "centered": "switch"}),
    "adamw_torch_4bit": _TORCHAO,
    "adamw_torch_8bit": _TORCHAO,
    "adamw_8bit": OptimizerInputs(_ADAM),
    "adamw_bnb_8bit": OptimizerInputs(_ADAM),
    "ademamix": _ADEMAMIX,
    "ademamix_8bit": _ADEMAMIX,
    "lion_32bit": OptimizerInputs(_BETAS),
    "lion_8bit": OptimizerInputs(_BETAS),
    # No details for the three: transformers hands them over as text, and bitsandbytes wants numbers.
    "rmsprop_bnb": OptimizerInputs(),
    "rmsprop_bnb_8bit": OptimizerInputs(),
    "rmsprop_bnb_32bit": OptimizerInputs(),
    "paged_adamw_32bit": OptimizerInputs(_ADAM),
    "paged_adamw_8bit": OptimizerInputs(_ADAM),
    "paged_ademamix_32bit": _ADEMAMIX,
    "paged_ademamix_8bit": _ADEMAMIX,
    "paged_lion_32bit": OptimizerInputs(_BETAS),
    "paged_lion_8bit": OptimizerInputs(_BETAS),
    "grokadamw": OptimizerInputs(
        (),
        {
            "alpha_init": "number",
            "lamb": "number",
            "gamma": "number",
            "grokking_signal_decay_rate": "number",
            "gradient_clipping": "number",
        },
    ),
    "schedule_free_radam": OptimizerInputs(_ADAM, _FREE),
    "schedule_free_adamw": OptimizerInputs(_ADAM, _FREE),
    "schedule_free_sgd": OptimizerInputs((), _FREE),
    "lomo": OptimizerInputs(),
    "adalomo": OptimizerInputs(),
    "came": OptimizerInputs(_BETAS),
    # transformers takes any text for these two as true, "false" too.
    "stable_adamw": OptimizerInputs(_ADAM, {"max_lr": "number", "kahan_sum": "true", "decouple_lr": "true"}),
}
"""Every optimizer that `optim` takes. Weight decay is left out of the details: our parameter groups carry it."""

OURS_ALONE = frozenset({"came"})
"""Those of them that transformers does not have."""

IN_BACKWARD_ALONE = frozenset({"lomo", "adalomo"})
"""Those of them that cannot but update parameters during the backward pass."""
