"""Which parameters share a learning rate and a weight decay.

Decay pulls matrices towards zero: weights of linear layers, embeddings, both factors of a LoRA pair. It has no business
with vectors: norms, biases, scales and magnitudes have a meaning at their size.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import nn

from tunesmith.errors import ModelError

_WORDS = {"adapters": r"lora_|oft_|adapter", "vision_tower": r"(^|\.)(visual|vision_tower|vision_model)\."}
"""Kinds of parameters that `learning_rate_groups` knows by a word, as patterns of their names."""


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
    rates: Mapping[str, Any] | None = None,
    head: nn.Module | None = None,
) -> list[dict[str, Any]]:
    """Return the optimizer's groups of all trained parameters, without empty ones, in a fixed order.

    Args:
        parameters: Names and parameters; those that need no gradient are left out.
        learning_rate: Of everything that has no rate of its own.
        weight_decay: Of matrices.
        lora_plus: Rates for the B factors, `None` for the same rate everywhere.
        rates: Learning rates by pattern; the first that is found in a name counts, before LoRA+.
        head: The output head, which the word `embeddings` means too.

    Raises:
        ModelError: A pattern is found in no name of a trained parameter.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    patterns = _Patterns(rates or {}, head)
    for name, parameter in parameters:
        if not parameter.requires_grad:
            continue
        rate = patterns.find_rate(name, parameter)
        if rate is None:
            rate = learning_rate if lora_plus is None else _lora_plus_rate(name, learning_rate, lora_plus)
        decay = weight_decay if decays(parameter) else 0.0
        groups.setdefault((rate, decay), []).append(parameter)
    patterns.check_all_found()
    return [{"params": members, "lr": rate, "weight_decay": decay} for (rate, decay), members in groups.items()]


class _Patterns:
    """Learning rates by pattern, with a record of which pattern was found."""

    def __init__(self, rates: Mapping[str, Any], head: nn.Module | None) -> None:
        self._rates = {pattern: float(rate) for pattern, rate in rates.items()}
        self._head = {id(parameter) for parameter in head.parameters()} if head is not None else set()
        self._found: set[str] = set()
        self._names: list[str] = []

    def find_rate(self, name: str, parameter: nn.Parameter) -> float | None:
        """Return the rate of the first pattern that is found in a name."""
        self._names.append(name)
        for pattern, rate in self._rates.items():
            if self._matches(pattern, name, parameter):
                self._found.add(pattern)
                return rate
        return None

    def check_all_found(self) -> None:
        """Refuse a pattern that was found in no name."""
        missing = [pattern for pattern in self._rates if pattern not in self._found]
        if missing:
            raise ModelError(
                f"learning_rate_groups: '{missing[0]}' is found in no name of a trained parameter that an earlier "
                f"pattern does not take. They are called such as {', '.join(self._names[:3])}."
            )

    def _matches(self, pattern: str, name: str, parameter: nn.Parameter) -> bool:
        if pattern == "embeddings":
            return id(parameter) in self._head or "embed" in name or "wte" in name.split(".")
        return re.search(_WORDS.get(pattern, pattern), name) is not None


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
