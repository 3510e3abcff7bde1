"""Settings of what is trained: all weights, some layers, or an adapter."""

from dataclasses import dataclass
from typing import Literal

from tunesmith.config.constraints import (
    FractionBelowOne,
    PathText,
    PositiveFloat,
    PositiveInt,
)

FinetuningType = Literal["full", "freeze", "lora"]


@dataclass(frozen=True, kw_only=True)
class AdapterConfig:
    """Which weights are trained, and the shape of what is added to them."""

    finetuning_type: FinetuningType = "lora"
    """What is trained: `lora` a small adapter beside frozen weights, `freeze` a few whole layers, `full` every weight.

    `lora` fits most jobs and machines. `full` learns the most and needs about 12 bytes per weight more."""

    adapter_name_or_path: tuple[PathText, ...] = ()
    """Adapters to start from, in order; all but the last are merged into the weights.

    The last one is trained on, unless `create_new_adapter` is set. Takes local folders and hub ids."""

    create_new_adapter: bool = False
    """Merge every adapter of `adapter_name_or_path` and train a new one.

    For a second stage on top of the first. The result needs the same adapters again, or an export of the merge."""

    lora_rank: PositiveInt = 8
    """Inner dimension of the LoRA matrices.

    Raise it (16 to 64) for large or difficult data sets. Doubling it doubles the trained weights."""

    lora_alpha: PositiveFloat | None = None
    """Strength of the adapter: its output is multiplied by `lora_alpha / lora_rank`. Twice the rank when not set.

    Usually left alone; changing it is much like changing the learning rate."""

    lora_dropout: FractionBelowOne = 0.0
    """Share of the adapter's inputs set to zero in training.

    0.05 to 0.1 can help on small data sets. Costs a little speed."""

    lora_target: tuple[str, ...] = ("all",)
    """Modules that get an adapter: names such as `q_proj`, `all`, `all-linear`, or a group such as `qwen2_mlp`.

    `all` learns best for its size. The groups `<family>_mlp` and `<family>_attn` and single names train fewer weights,
    a little faster. A name that the model does not have is an error that lists what it has."""

    additional_target: tuple[str, ...] = ()
    """Modules outside the adapter that are trained and saved whole, such as `embed_tokens,lm_head`.

    Needed when the vocabulary changed. Costs full optimizer memory for these modules."""

    use_rslora: bool = False
    """Multiply the adapter's output by `lora_alpha / sqrt(lora_rank)` (rank-stabilised LoRA).

    Keeps large ranks (64 and more) learning as fast as small ones."""

    use_dora: bool = False
    """Learn magnitude and direction of each weight apart (DoRA).

    Can come closer to full tuning at small ranks. Costs a third or more of the speed."""

    loraplus_lr_ratio: PositiveFloat | None = None
    """Learning rate of the LoRA B matrices divided by that of A (LoRA+); the same rate when not set.

    4 to 16 often learns faster."""

    loraplus_lr_embedding: PositiveFloat = 1e-6
    """Learning rate of adapters on embeddings under LoRA+."""

    freeze_trainable_layers: int = 2
    """With `finetuning_type: freeze`, number of layers that are trained: the last ones, or the first when negative."""

    freeze_trainable_modules: tuple[str, ...] = ("all",)
    """With `finetuning_type: freeze`, modules of these layers that are trained, such as `mlp`; `all` is the whole."""

    freeze_extra_modules: tuple[str, ...] = ()
    """With `finetuning_type: freeze`, modules outside the layers that are trained too, such as `embed_tokens,norm`."""
