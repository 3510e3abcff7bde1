"""What is known of peft's tuning methods without importing peft: a test compares it with the installed library."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

Place = Literal["linear", "norms", "embeddings", "none"]


@dataclass(frozen=True, slots=True)
class PeftMethod:
    """How one method is set up and what can be done with its result."""

    place: Place = "linear"
    """Modules it is put on when `lora_target` is all: linear layers, norms, embeddings, or none it could choose."""

    merges: bool = True
    """Whether its result can be added to the weights of the model."""

    obstacle: str = ""
    """Why it cannot be merged."""

    resume_obstacle: str = ""
    """Why training cannot go on from what is saved; empty where it can."""

    needs: tuple[str, ...] = ()
    """Options without a usable default, which `adapter_options` has to give."""

    is_prompt: bool = False
    """Whether it learns vectors in front of the text instead of changing layers."""

    needs_exact_weights: bool = False
    """Whether it computes with the frozen weights themselves, of which it would see packed bytes in bitsandbytes."""


_PROMPT = PeftMethod(
    place="none", merges=False, obstacle="it learns vectors in front of the text, not weights", is_prompt=True
)

PEFT_METHODS: Mapping[str, PeftMethod] = {
    "lora": PeftMethod(),
    "oft": PeftMethod(),
    "adalora": PeftMethod(
        resume_obstacle="the running importance of its ranks is not saved, so other ranks would be taken away"
    ),
    "boft": PeftMethod(),
    "c3a": PeftMethod(needs=("block_size",)),
    "deft": PeftMethod(needs_exact_weights=True),
    "delora": PeftMethod(needs_exact_weights=True),
    "fourierft": PeftMethod(),
    "frod": PeftMethod(needs_exact_weights=True),
    "glora": PeftMethod(needs_exact_weights=True),
    "gralora": PeftMethod(),
    "hira": PeftMethod(),
    "hra": PeftMethod(needs_exact_weights=True),
    "ia3": PeftMethod(),
    "lily": PeftMethod(merges=False, obstacle="peft has no merge for it"),
    "ln_tuning": PeftMethod(place="norms"),
    "loha": PeftMethod(needs_exact_weights=True),
    "lokr": PeftMethod(needs_exact_weights=True),
    "miss": PeftMethod(),
    "osf": PeftMethod(needs_exact_weights=True),
    "p_tuning": replace(
        _PROMPT, resume_obstacle="what is saved is the prompt that its network computes, and not that network"
    ),
    "peanut": PeftMethod(needs_exact_weights=True),
    "prefix_tuning": _PROMPT,
    "prompt_tuning": _PROMPT,
    "psoft": PeftMethod(needs_exact_weights=True),
    "pvera": PeftMethod(),
    "randlora": PeftMethod(),
    "road": PeftMethod(),
    "shira": PeftMethod(),
    "supertuning": PeftMethod(needs_exact_weights=True),
    "tinylora": PeftMethod(needs_exact_weights=True),
    "trainable_tokens": PeftMethod(place="embeddings", needs=("token_indices",)),
    "unilora": PeftMethod(),
    "vblora": PeftMethod(),
    "vera": PeftMethod(),
    "waveft": PeftMethod(),
}
"""Methods that `finetuning_type` takes besides full and freeze."""

REFUSED_METHODS: Mapping[str, str] = {
    "adamss": "it needs scikit-learn and a call of its own after every step",
    "adaption_prompt": "peft has it for a few old families, whose layers it replaces",
    "beft": "it trains biases, which the linear layers of nearly all language models do not have",
    "cartridge": "it begins with keys and values of a document, which no setting here gives",
    "cpt": "it needs token ids and kinds for each prompt, which no setting here gives",
    "multitask_prompt_tuning": "it needs the number of a task for every row, which no data format here has",
    "poly": "it needs the number of a task for every row, which no data format here has",
    "shadow": "its layers are no modules that the trainer can run",
    "xlora": "it mixes adapters that are trained already",
}
"""peft's other methods, and why they are not offered."""

MOVES_WEIGHTS = frozenset({"pissa", "olora", "lora_ga"})
"""Values of `init_lora_weights` that take what the adapter begins with out of the frozen weights."""

SAVED_WITHOUT_BEGINNING = MOVES_WEIGHTS | {"loftq"}
"""Values with which an adapter is saved as the difference to the exact weights, which is not what it is in training."""
