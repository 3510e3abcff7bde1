"""How much memory a training step takes, estimated from shapes before anything runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tunesmith.models.heads import find_base_model
from tunesmith.models.lean.mlp import LeanGatedMlp
from tunesmith.models.lean.norm import LeanRmsNorm

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

_LOGIT_POSITIONS = 1024
"""Positions whose logits exist at one time, about: see `objectives.chunked_head`."""


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


@dataclass(frozen=True, slots=True)
class Keeping:
    """What of a forward pass waits for the backward pass on the device."""

    recomputes: bool = False
    """Whether layers keep their inputs alone, and are computed again (gradient checkpointing)."""

    every: int = 1
    """Only each n-th layer is one of those, beginning with the first."""

    products: bool = False
    """Whether these keep the results of products and attention all the same."""

    offloads: bool = False
    """Whether what is kept waits in the memory of the host."""


def estimate_training_memory(
    model: nn.Module,
    *,
    tokens: int,
    compute_dtype: torch.dtype,
    optimizer: str = "adamw_torch",
    updates_in_backward: bool = False,
    keeping: Keeping | None = None,
) -> TrainingMemory:
    """Estimate the memory of a training step.

    Args:
        model: With its trained part chosen.
        tokens: Tokens of one micro-batch, at most.
        compute_dtype: Type of the activations.
        optimizer: Setting `optim`, or the switch of one that has a switch.
        updates_in_backward: Whether each gradient is freed as soon as its parameter is updated.
        keeping: What is kept of activations; everything by default.
    """
    keeping = keeping or Keeping()
    parameters = list(model.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    num_trained = sum(parameter.numel() for parameter in trained)
    gradients = [parameter.numel() * parameter.element_size() for parameter in trained]
    config = find_base_model(model).config.get_text_config()
    hidden_bytes = config.hidden_size * compute_dtype.itemsize
    per_token = _layers_bytes_per_token(model, config, compute_dtype, keeping)
    per_token += 4 * hidden_bytes  # embeddings, last norm and the head's input
    # A chunk of logits exists in the compute type and, for the loss and its gradient, twice in fp32.
    logits = min(tokens, _LOGIT_POSITIONS) * config.vocab_size * (compute_dtype.itemsize + 8)
    return TrainingMemory(
        weights=sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        gradients=max(gradients, default=0) if updates_in_backward else sum(gradients),
        optimizer=int(num_trained * _optimizer_bytes(optimizer)),
        activations=int(tokens * per_token),
        logits=logits,
    )


def _layers_bytes_per_token(model: nn.Module, config: Any, compute_dtype: torch.dtype, keeping: Keeping) -> float:
    """Return what all layers together keep of each token."""
    num_layers = int(config.num_hidden_layers)
    whole = _layer_bytes_per_token(model, config, compute_dtype, num_layers)
    if keeping.offloads:
        return whole  # of the layer that is just computed
    if not keeping.recomputes:
        return num_layers * whole
    sizes, size = _Sizes.of(config), compute_dtype.itemsize
    little = sizes.hidden * size
    if keeping.products:  # of seven linear layers, and of attention
        little += 2 * (sizes.queries + sizes.keys + sizes.hidden + sizes.intermediate) * size
    num_recomputed = -(-num_layers // keeping.every)
    # One layer at a time is computed again.
    return num_recomputed * min(little, whole) + (num_layers - num_recomputed + 1) * whole


def _layer_bytes_per_token(model: nn.Module, config: Any, compute_dtype: torch.dtype, num_layers: int) -> float:
    """Return what one layer keeps of each token for its backward pass.

    Counted by shapes: both norms keep their input in fp32 and what they pass on, lean ones their input as it is;
    attention keeps query, key, value and output; a gated mlp keeps gate, up, the activation and their product, a lean
    one only the first two. A trained matrix keeps its input as well, which is one of these, unless it is an adapter in
    another type than the activations: then it keeps a copy.
    """
    sizes = _Sizes.of(config)
    size = compute_dtype.itemsize
    has_cast_adapters = _has_cast_adapters(model, compute_dtype)
    lean_norms = lean_mlps = 0.0  # as shares of the layers
    # Under autocast, where what is trained has another type than the activations, lean layers step aside.
    if all(value.dtype == compute_dtype for value in model.parameters() if value.requires_grad):
        modules = list(model.modules())
        frozen_norms = sum(isinstance(each, LeanRmsNorm) and not each.weight.requires_grad for each in modules)
        lean_norms = min(1.0, frozen_norms / (2 * num_layers))
        lean_mlps = min(1.0, sum(isinstance(each, LeanGatedMlp) and each.keeps_less for each in modules) / num_layers)
    norms = 2 * sizes.hidden * (lean_norms * size + (1 - lean_norms) * 4 + size)
    attention = (3 * sizes.queries + 2 * sizes.keys) * size
    mlp = (4 - 2 * lean_mlps) * sizes.intermediate * size
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
