"""How much memory a training step takes, estimated from shapes before anything runs."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from tunesmith.models.heads import find_base_model
from tunesmith.models.lean.mlp import LeanGatedMlp

# Bytes of optimiser state per trained weight; the default is that of Adam: two fp32 moments.
_OPTIMIZER_BYTES: Mapping[str, float] = {
    "sgd": 0.0,
    "lomo": 0.0,
    "adafactor": 0.1,
    "adalomo": 0.1,
    "came": 4.2,
    "adagrad": 4.0,
    "rmsprop": 4.0,
    "lion_32bit": 4.0,
    "paged_lion_32bit": 4.0,
    "adamw_torch_4bit": 1.2,
    "ademamix": 12.0,
    "paged_ademamix_32bit": 12.0,
    "use_galore": 1.0,
    "use_apollo": 0.5,
    "use_badam": 1.0,
    "use_adam_mini": 4.1,
    "use_muon": 4.5,
}
_EIGHT_BIT_OPTIMIZER_BYTES = 2.2
_ADAM_BYTES = 8.0

# What the allocator, temporary results of the backward pass and the libraries take on top of what is counted.
_OVERHEAD = 1.1


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """Bytes of one training step, by what they are for."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int

    @property
    def total(self) -> int:
        """All of it, with an allowance for what cannot be counted beforehand."""
        return int(_OVERHEAD * (self.weights + self.gradients + self.optimizer + self.activations + self.logits))

    @property
    def beyond_weights(self) -> int:
        """What is still to come once the weights are in memory."""
        return self.total - int(_OVERHEAD * self.weights)


def estimate_training_memory(
    model: nn.Module,
    *,
    tokens: int,
    compute_dtype: torch.dtype,
    optimizer: str = "adamw_torch",
    gradient_checkpointing: bool = False,
    logit_positions: int = 1024,
) -> TrainingMemory:
    """Estimate the memory of a training step.

    Args:
        model: With its trained part chosen.
        tokens: Tokens of one micro-batch, at most.
        compute_dtype: Type of the activations.
        optimizer: Setting `optim`.
        gradient_checkpointing: Whether only the inputs of layers are kept.
        logit_positions: Positions whose logits exist at one time.
    """
    parameters = list(model.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    num_trained = sum(parameter.numel() for parameter in trained)
    config = find_base_model(model).config.get_text_config()
    per_layer = _layer_bytes_per_token(model, config, compute_dtype)
    num_layers = int(config.num_hidden_layers)
    hidden_bytes = config.hidden_size * compute_dtype.itemsize
    per_token = num_layers * (hidden_bytes if gradient_checkpointing else per_layer)
    per_token += per_layer if gradient_checkpointing else 0  # one layer at a time is computed again
    per_token += 4 * hidden_bytes  # embeddings, last norm and the head's input
    # A chunk of logits exists in the compute type and, for the loss and its gradient, twice in fp32.
    logits = min(tokens, logit_positions) * config.vocab_size * (compute_dtype.itemsize + 8)
    return TrainingMemory(
        weights=sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        gradients=sum(parameter.numel() * parameter.element_size() for parameter in trained),
        optimizer=int(num_trained * _optimizer_bytes(optimizer)),
        activations=int(tokens * per_token),
        logits=logits,
    )


def _layer_bytes_per_token(model: nn.Module, config: object, compute_dtype: torch.dtype) -> float:
    """Return what one layer keeps of each token for its backward pass.

    Counted by shapes: both norms keep their input in fp32 and what they pass on; attention keeps query, key, value and
    output; a gated mlp keeps gate, up, the activation and their product, a lean one only the first two. A trained
    matrix keeps its input as well, which is one of these, unless it is an adapter in another type than the activations:
    then it keeps a copy.
    """
    sizes = _Sizes.of(config)
    size = compute_dtype.itemsize
    norms = 2 * sizes.hidden * (4 + size)
    attention = (3 * sizes.queries + 2 * sizes.keys) * size
    has_cast_adapters = _has_cast_adapters(model, compute_dtype)
    is_lean = not has_cast_adapters and any(isinstance(module, LeanGatedMlp) for module in model.modules())
    mlp = (2 if is_lean else 4) * sizes.intermediate * size
    copies = 0.0
    if has_cast_adapters:
        copies = 4.0 * (2 * sizes.hidden + sizes.queries + sizes.intermediate)
    return norms + attention + mlp + copies


def _has_cast_adapters(model: nn.Module, compute_dtype: torch.dtype) -> bool:
    return any(
        "lora_" in name and parameter.dtype != compute_dtype
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    )


@dataclass(frozen=True, slots=True)
class _Sizes:
    hidden: int
    queries: int
    keys: int
    intermediate: int

    @classmethod
    def of(cls, config: object) -> "_Sizes":
        """Read the widths; families name them alike, and a missing one has its usual meaning."""
        settings: dict[str, object] = config.to_dict()  # type: ignore[attr-defined]

        def number(name: str, otherwise: int) -> int:
            value = settings.get(name)
            return int(value) if isinstance(value, int) else otherwise

        hidden = number("hidden_size", 0)
        heads = number("num_attention_heads", 1)
        head_dim = number("head_dim", hidden // heads)
        experts = number("num_experts_per_tok", 1)
        inner = number("moe_intermediate_size", number("intermediate_size", 4 * hidden))
        return cls(hidden, heads * head_dim, number("num_key_value_heads", heads) * head_dim, experts * inner)


def _optimizer_bytes(name: str) -> float:
    if "8bit" in name:
        return _EIGHT_BIT_OPTIMIZER_BYTES
    return _OPTIMIZER_BYTES.get(name, _ADAM_BYTES)
