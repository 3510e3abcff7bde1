"""Settings of the model and its tokenizer."""

import os
from dataclasses import dataclass, field
from typing import Literal

from tunesmith.config.constraints import PathText, PositiveInt, TextMapping, TreeMapping

FlashAttention = Literal["auto", "disabled", "eager", "sdpa", "segments", "flex", "fa2", "fa3"]
RopeScaling = Literal["linear", "dynamic", "yarn", "llama3", "longrope", "proportional"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which model is trained or run, and how it is loaded."""

    model_name_or_path: PathText | None = None
    """Model to start from: a local folder, a GGUF file or a folder with one, or a hub id such as `org/name`.

    A value that looks like a path (it starts with `/`, `.` or `~`, or ends in `.gguf`) has to exist. Required by every
    command that loads a model."""

    adapter_folder: str | None = None
    """Folder inside each of `adapter_name_or_path` that holds the adapter, where it is not at the top, such as
    `checkpoint-500` of a repository."""

    model_hub: Literal["auto", "huggingface", "modelscope"] = "auto"
    """Hub that a model id is looked up on.

    `auto` is Hugging Face, or ModelScope when the variable `USE_MODELSCOPE_HUB` is set. Set it where one of the hubs
    cannot be reached. `modelscope` needs the extra `modelscope`."""

    model_revision: str = "main"
    """Branch, tag or commit of the model on its hub.

    Pin a commit to get the same weights next year. No effect on local folders."""

    cache_dir: PathText | None = None
    """Folder for downloaded models and tokenizers; the hub library's own when not set.

    Change it when the home folder is small. Costs the size of the model on disk."""

    trust_remote_code: bool = False
    """Run Python code that comes with the model.

    Needed only for architectures that transformers does not have. It can do anything that you can: read it first."""

    use_fast_tokenizer: bool = True
    """Use the Rust implementation of the tokenizer.

    Set it to false only for a model whose fast tokenizer is broken; preparing data is then about ten times slower. Not
    possible where there is only a fast one, as for GGUF files."""

    split_special_tokens: bool = False
    """Tokenize text that spells a special token (such as `<|im_end|>` inside an answer) as ordinary characters.

    Set it to true when rows come from strangers and must not be able to forge role markers. Role markers that the
    template writes stay special tokens."""

    add_tokens: tuple[str, ...] = ()
    """Words that become one token each, such as names of a field's own language. Answers show them.

    Their rows of the embedding and the output head are trained whole, also beside LoRA, and saved with the adapter.
    Worth it only for words that are frequent in the data."""

    add_special_tokens: tuple[str, ...] = ()
    """Control tokens to add, such as `<|tool_call|>`. Answers are shown without them.

    Trained and saved like those of `add_tokens`."""

    new_special_tokens_config: PathText | TextMapping | None = None
    """What new control tokens mean: `token: description`, written here or in a YAML file that is named.

    Tokens named here are added too. `init_special_tokens: desc_init` begins their rows from the words."""

    init_special_tokens: Literal["mean_init", "noise_init", "desc_init", "desc_init_w_noise"] = "noise_init"
    """How rows of new tokens begin.

    `mean_init`: the mean of all rows. `noise_init`: the same with noise, so that new tokens differ. `desc_init`: the
    mean of the description's words, which learns fastest; `desc_init_w_noise` adds noise to it."""

    resize_vocab: bool = False
    """Give the embedding and the output head rows for every token of the tokenizer, a multiple of 64 in all.

    Happens by itself where the settings add tokens; set it to true where the tokenizer has more tokens than the model
    for other reasons. The new rows are trained and saved with the adapter."""

    hf_hub_token: str | None = field(default=None, repr=False, compare=False)
    """Access token for gated or private repositories on Hugging Face.

    Better given as `TUNESMITH_HF_HUB_TOKEN` than in a file. Never written to the saved configuration."""

    ms_hub_token: str | None = field(default=None, repr=False, compare=False)
    """Access token for private repositories on ModelScope.

    Better given as `TUNESMITH_MS_HUB_TOKEN` than in a file. Never written to the saved configuration."""

    flash_attn: FlashAttention = "auto"
    """How attention is computed.

    `auto` takes the fastest way that this machine and model have. `sdpa` is PyTorch's own, `segments` is sdpa sample by
    sample (padding-free without flash attention), `flex` is PyTorch's flex attention, compiled for a GPU (padding-free,
    and the completions of a pair share their prompt), `fa2` and `fa3` are the flash-attention packages and need a GPU,
    `eager` and `disabled` are the plain formula: slow, for comparisons."""

    lean_layers: bool = True
    """Compute LoRA, gated feed-forward and RMS norm layers with a forward that keeps less for the backward pass.

    The numbers stay the same up to rounding; a LoRA step on a CPU takes about a quarter less time and a fifth less
    memory for activations.
    Layers that are built or used differently keep their own forward. Set it to false to compare with peft's layers."""

    rope_scaling: RopeScaling | TreeMapping | None = None
    """Way of stretching rotary positions so that `cutoff_len` may exceed what the model was trained with.

    `yarn` usually keeps the most quality. Training on long rows afterwards is needed for good results. The factor
    follows from `cutoff_len`; a mapping gives it, and what else transformers knows, itself, as
    `{rope_type: yarn, factor: 4, beta_fast: 32}`. `longrope` needs such a mapping. Adapters and merged models are
    run as they were trained, without this setting."""

    gradient_checkpointing: Literal["auto", "selective"] | bool = "auto"
    """Compute activations again in the backward pass instead of keeping them.

    `auto` does so only when the memory estimate says that the run would not fit otherwise. True costs about a third
    more time and saves most of the activation memory. `selective` keeps the results of matrix products and attention
    and computes the rest again: a part of the memory for little time."""

    checkpoint_every: PositiveInt = 1
    """With gradient checkpointing, checkpoint each n-th layer only: 2 costs half the time and saves half the memory."""

    activation_offload: bool = False
    """Let activations wait for the backward pass in the memory of the host.

    For long rows on GPUs; goes well with `gradient_checkpointing`, when only the inputs of layers travel. Costs the
    time of the copies."""

    upcast_layernorm: bool = False
    """Keep the frozen weights of norms in float32 beside a base in half precision.

    They are few, and what they scale is everything. Trained weights are in float32 anyway."""

    enable_liger_kernel: bool = False
    """Use the fused kernels of the package liger-kernel for norms, rotary positions and gated layers.

    Needs a GPU. Checked when a run starts: the model must give the same logits as before. Cross-entropy stays ours,
    which makes logits only where a label is."""

    disable_gradient_checkpointing: bool = False
    """LLaMA-Factory's way of saying `gradient_checkpointing: false`."""

    use_reentrant_gc: bool = False
    """Use PyTorch's older, re-entrant implementation of gradient checkpointing.

    Set it to true only for a model whose code fails with the newer one. It costs more memory."""

    train_from_scratch: bool = False
    """Start from random weights of the model's architecture instead of its trained ones.

    For pre-training experiments; needs `finetuning_type: full`."""

    print_param_status: bool = False
    """Log name, type, device and trainability of every parameter before training.

    To find out why something is or is not trained. Prints hundreds of lines."""

    infer_dtype: Literal["auto", "float16", "bfloat16", "float32"] = "auto"
    """Number type of the weights for chat and export. A run takes `bf16`, `fp16` and `pure_bf16` instead.

    `auto` keeps the type the weights are stored in where the device computes it well. `float32` is exact and takes
    twice the memory of the others."""

    @property
    def is_on_modelscope(self) -> bool:
        """Whether ids are looked up on ModelScope instead of Hugging Face."""
        if self.model_hub == "auto":
            return os.environ.get("USE_MODELSCOPE_HUB", "").lower() in {"1", "true", "yes"}
        return self.model_hub == "modelscope"
