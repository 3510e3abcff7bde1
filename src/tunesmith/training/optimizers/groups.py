"""Which parameters share a learning rate and a weight decay.

Decay pulls matrices towards zero: weights of linear layers, embeddings, both factors of a LoRA pair. It has no business
with vectors: norms, biases, scales and magnitudes have a meaning at their size.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import nn


@dataclass(frozen=True, slots=True)
class LoraPlusRates:
    """Learning rates of LoRA+ (Hayou et al. 2024, section 4): the B factors learn faster than the A factors."""

    ratio: float
    """Learning rate of B over that of A."""

    embedding_rate: float
    """Learning rate of the B factors of embeddings."""


def decays(parameter: nn.Parameter) -> bool:
    """Return whether weight decay applies: to matrices only, by shape and not by name."""
    return parameter.dim() >= 2


def build_parameter_groups(
    parameters: Iterable[tuple[str, nn.Parameter]],
    *,
    learning_rate: float,
    weight_decay: float,
    lora_plus: LoraPlusRates | None = None,
) -> list[dict[str, Any]]:
    """Return the optimizer's groups of all trained parameters, without empty ones, in a fixed order.

    Args:
        parameters: Names and parameters; those that need no gradient are left out.
        learning_rate: Of everything that has no rate of its own.
        weight_decay: Of matrices.
        lora_plus: Rates for the B factors, `None` for the same rate everywhere.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in parameters:
        if not parameter.requires_grad:
            continue
        rate = learning_rate if lora_plus is None else _lora_plus_rate(name, learning_rate, lora_plus)
        decay = weight_decay if decays(parameter) else 0.0
        groups.setdefault((rate, decay), []).append(parameter)
    return [{"params": members, "lr": rate, "weight_decay": decay} for (rate, decay), members in groups.items()]


def _lora_plus_rate(name: str, learning_rate: float, rates: LoraPlusRates) -> float:
    if "lora_embedding_B" in name:
        return rates.embedding_rate
    return learning_rate * rates.ratio if "lora_B" in name else learning_rate


def keep_embeddings_exact(model: nn.Module) -> None:
    """Have an 8-bit optimizer of bitsandbytes keep the states of embeddings in 32 bits.

    Their gradients are zero for most rows and large for some, which is what 8-bit blocks hold worst; the authors of the
    optimizers recommend it (Dettmers et al. 2022, section 2.3).
    """
    manager = import_module("bitsandbytes").optim.GlobalOptimManager.get_instance()
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            manager.register_module_override(module, "weight", {"optim_bits": 32})
