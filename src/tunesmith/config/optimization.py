"""Settings of the optimizer, its schedule and the numbers it works in; a part of the training group."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tunesmith.config.constraints import (
    FractionBelowOne,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Range,
    ScalarMapping,
)

Optimizer = Literal[
    "adamw_torch",
    "adamw_torch_fused",
    "adafactor",
    "sgd",
    "adagrad",
    "rmsprop",
    "adamw_torch_4bit",
    "adamw_torch_8bit",
    "adamw_8bit",
    "adamw_bnb_8bit",
    "ademamix",
    "ademamix_8bit",
    "lion_32bit",
    "lion_8bit",
    "rmsprop_bnb",
    "rmsprop_bnb_8bit",
    "rmsprop_bnb_32bit",
    "paged_adamw_32bit",
    "paged_adamw_8bit",
    "paged_ademamix_32bit",
    "paged_ademamix_8bit",
    "paged_lion_32bit",
    "paged_lion_8bit",
    "grokadamw",
    "schedule_free_radam",
    "schedule_free_adamw",
    "schedule_free_sgd",
    "stable_adamw",
    "lomo",
    "adalomo",
    "came",
]
Schedule = Literal[
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
    "reduce_lr_on_plateau",
    "cosine_with_min_lr",
    "cosine_warmup_with_min_lr",
    "warmup_stable_decay",
    "greedy",
]


DEFAULT_BATCH_SIZE = 8
"""Rows of a micro-batch where nobody says otherwise."""


@dataclass(frozen=True, kw_only=True)
class OptimizationSettings:
    """How a step changes the weights."""

    per_device_train_batch_size: Literal["auto"] | PositiveInt = DEFAULT_BATCH_SIZE
    """Rows (or packed rows) of one micro-batch on each device. Memory for activations grows with it.

    `auto` tries on the longest rows how many fit, and makes steps of 8 times `gradient_accumulation_steps` rows for
    each device of as few micro-batches as that allows: memory is used, and the steps are the same on every machine."""

    @property
    def batch_size(self) -> int:
        """`per_device_train_batch_size` as a number; of a run that has found one out, where it was `auto`."""
        size = self.per_device_train_batch_size
        if size == "auto":
            raise ValueError("the batch size has not been found out yet")
        return size

    gradient_accumulation_steps: PositiveInt = 1
    """Micro-batches per optimizer step.

    Raise it to get a larger batch in the same memory. The gradient is exactly that of the larger batch."""

    learning_rate: NonNegativeFloat = 5e-5
    """Size of the steps at its highest point.

    1e-4 to 3e-4 is usual for LoRA, 5e-6 to 5e-5 for full tuning. Too high a value shows as a loss that jumps."""

    lr_scheduler_type: Schedule = "linear"
    """How the learning rate goes down after warm-up. `cosine` and `linear` end at 0, `constant` does not go down."""

    lr_scheduler_kwargs: ScalarMapping | None = None
    """Details of the schedule, such as `{min_lr: 1e-6}` for `cosine_with_min_lr`."""

    warmup_steps: NonNegativeFloat = 0.0
    """Optimizer steps over which the learning rate rises from 0; a value below 1 is a share of all steps.

    `lr_scheduler_type: constant` has no warm-up, `constant_with_warmup` has one."""

    warmup_ratio: FractionBelowOne | None = None
    """Share of all steps over which the learning rate rises from 0. 0 leaves it to `warmup_steps`; keep one of both."""

    optim: Optimizer = "adamw_torch_fused"
    """Optimizer.

    The default is the fastest here. 8-bit and paged ones save memory and need the package bitsandbytes
    (`adamw_torch_8bit` and `adamw_torch_4bit`: torchao); `adafactor` saves memory without one."""

    optim_args: str | None = None
    """Details of the optimizer, as `name=value,name=value`, such as `momentum=0.9` for `sgd`.

    For optimizers that have some beyond the settings here. A name that the optimizer does not know is refused."""

    weight_decay: NonNegativeFloat = 0.0
    """Pull of the weights towards 0. Applied to matrices, LoRA's too, and not to norms, biases and scales."""

    adam_beta1: FractionBelowOne = 0.9
    """How slowly the running mean of the gradient follows. For optimizers of the Adam and Lion families."""

    adam_beta2: FractionBelowOne = 0.999
    """How slowly the running mean of the squared gradient follows. 0.95 is usual for pre-training."""

    adam_epsilon: PositiveFloat = 1e-8
    """Added to the denominator of an Adam step, so that it is never 0."""

    max_grad_norm: NonNegativeFloat = 1.0
    """Gradients longer than this are shortened to it. 0 never shortens."""

    neftune_noise_alpha: PositiveFloat | None = None
    """Strength of random noise on the embeddings in training (NEFTune). 5 to 15 can help chat models on little data."""

    bf16: bool | None = None
    """Compute in bfloat16 under autocast.

    When not set, chosen by the machine: yes where it computes bfloat16 natively, and stated in the plan. False on both
    this and `fp16` means float32 throughout."""

    fp16: bool | None = None
    """Compute in float16 with loss scaling, for GPUs without bfloat16 (before Ampere). Needs a GPU."""

    pure_bf16: bool = False
    """Keep the trained weights themselves in bfloat16.

    Halves their memory. Small updates get lost in rounding, so the result is a little worse."""

    fp8: bool = False
    """Compute the products of linear layers in 8-bit floats (torchao). Full tuning on Ada, Hopper or newer GPUs.

    Pays for large models and batches; the weights stay in their precision. Needs the extra `torchao`."""

    fp8_backend: Literal["auto", "torchao"] = "auto"
    """Library that computes in 8-bit floats; there is one."""

    tf32: bool | None = None
    """Let float32 matrix products round their inputs to 10 bits (TensorFloat-32). Needs an Ampere or newer GPU."""

    torch_compile: bool = False
    """Compile the model with PyTorch before training.

    Can be faster in long runs on GPUs. Costs minutes at the start and again for new shapes."""

    torch_compile_backend: str | None = None
    """Backend of `torch_compile`; `inductor` when not set."""

    torch_compile_mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] | None = (
        None
    )
    """How much time `torch_compile` spends on looking for faster code."""

    seed: Annotated[int, Range(0, 2**32 - 1)] = 42
    """Seed of everything random: new weights, order of rows, splits, dropout."""

    data_seed: Annotated[int, Range(0, 2**32 - 1)] | None = None
    """Seed of the order of rows alone; `seed` when not set."""

    full_determinism: bool = False
    """Use only operations that give the same bits every time, or stop where there is none. Slower on GPUs."""
