"""Settings of what is trained: all weights, some layers, or an adapter."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from tunesmith.config.constraints import (
    FractionBelowOne,
    NonNegativeInt,
    PathText,
    PositiveFloat,
    PositiveInt,
    Range,
    ScalarMapping,
    TreeMapping,
)

FinetuningType = Literal[
    "full",
    "freeze",
    "lora",
    "oft",
    "adalora",
    "boft",
    "c3a",
    "deft",
    "delora",
    "fourierft",
    "frod",
    "glora",
    "gralora",
    "hira",
    "hra",
    "ia3",
    "lily",
    "ln_tuning",
    "loha",
    "lokr",
    "miss",
    "osf",
    "p_tuning",
    "peanut",
    "prefix_tuning",
    "prompt_tuning",
    "psoft",
    "pvera",
    "randlora",
    "road",
    "shira",
    "supertuning",
    "tinylora",
    "trainable_tokens",
    "unilora",
    "vblora",
    "vera",
    "waveft",
]
InitialWeights = Literal["default", "gaussian", "orthogonal", "olora", "pissa", "loftq", "eva", "lora_ga"]


@dataclass(frozen=True, kw_only=True)
class AdapterConfig:
    """Which weights are trained, and the shape of what is added to them."""

    finetuning_type: FinetuningType = "lora"
    """What is trained: `lora` a small adapter beside frozen weights, `freeze` a few whole layers, `full` every weight.

    `lora` fits most jobs and machines. `full` learns the most and needs about 12 bytes per weight more. `oft` and the
    others are peft's methods under peft's names; their details go into `adapter_options`."""

    adapter_options: TreeMapping = field(default_factory=dict)
    """Details of the method by peft's own names, such as `{d_initial: 0.1}` for `vera`.

    For whatever has no setting of its own here. A name that peft's configuration of the method does not have is an
    error that lists those it has."""

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

    lora_rank_pattern: ScalarMapping = field(default_factory=dict)
    """Ranks of single modules, by name or regular expression, such as `{down_proj: 32}`; the others have `lora_rank`.

    A pattern means modules whose full name ends in it. One that fits no adapter is an error."""

    lora_alpha_pattern: ScalarMapping = field(default_factory=dict)
    """Values of `lora_alpha` for single modules, by name or regular expression, as in `lora_rank_pattern`."""

    lora_target: tuple[str, ...] = ("all",)
    """Modules that get an adapter: names such as `q_proj`, `all`, `all-linear`, or a group such as `qwen2_mlp`.

    `all` learns best for its size: every linear layer but the output head, experts of mixtures included and their
    routers not (add `routers`). `all-linear` leaves out experts that are fused into one weight. The groups
    `<family>_mlp` and `<family>_attn`, `experts` and single names train fewer weights, a little faster. A name that
    the model does not have is an error that lists what it has. Other methods of peft go by it too."""

    additional_target: tuple[str, ...] = ()
    """Modules outside the adapter that are trained and saved whole, such as `embed_tokens,lm_head`.

    Needed when the vocabulary changed. Costs full optimizer memory for these modules."""

    use_rslora: bool = False
    """Multiply the adapter's output by `lora_alpha / sqrt(lora_rank)` (rank-stabilised LoRA).

    Keeps large ranks (64 and more) learning as fast as small ones."""

    use_dora: bool = False
    """Learn magnitude and direction of each weight apart (DoRA).

    Can come closer to full tuning at small ranks. Costs a third or more of the speed."""

    init_lora_weights: InitialWeights = "default"
    """How a new LoRA adapter begins, by peft's names; `default` changes nothing at first.

    `pissa` and `olora` begin with the strongest directions of the weights, `eva` with those of the data, `lora_ga` with
    those of the first gradients: all of them often learn faster in the first hundreds of steps. `loftq` makes up for
    what 4-bit weights lost. Adapters are saved as plain LoRA whichever it is."""

    pissa_init: bool = False
    """Another name for `init_lora_weights: pissa`."""

    pissa_iter: Annotated[int, Range(-1)] = 16
    """Iterations of the fast decomposition that PiSSA begins with; -1 is the exact one, which takes minutes."""

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

    use_llama_pro: bool = False
    """With `finetuning_type: freeze`, train blocks spread evenly over the model instead of the last ones (LLaMA Pro).

    `freeze_trainable_layers` is their number, of which the number of layers has to be a multiple."""

    llama_pro_new_blocks: NonNegativeInt = 0
    """With `use_llama_pro`, number of new blocks to put in first, spread evenly; these are the ones that are trained.

    A new block is a copy that changes nothing until it is trained. The model that is saved is deeper by so many."""

    oft_rank: NonNegativeInt = 0
    """With `finetuning_type: oft`, number of rotated blocks per layer; 0 leaves it to `oft_block_size`."""

    oft_block_size: NonNegativeInt = 32
    """With `finetuning_type: oft`, size of the rotated blocks; 0 leaves it to `oft_rank`. Larger ones learn more."""

    module_dropout: FractionBelowOne = 0.0
    """With `finetuning_type: oft`, share of the rotated blocks that is left as it was in each step of training."""
