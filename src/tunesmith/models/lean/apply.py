"""Puts lean layers into a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from peft.tuners.lora.layer import Linear as PeftLoraLinear
from torch import nn

from tunesmith.models.lean.lora import LeanLoraLinear
from tunesmith.models.lean.mlp import is_gated_silu, lean_mlp_class
from tunesmith.models.lean.norm import is_plain_rms_norm, lean_norm_class
from tunesmith.models.lean.shared import share_inputs


@dataclass(frozen=True, slots=True)
class LeanLayers:
    """How many layers of each kind were replaced."""

    lora: int
    mlps: int
    norms: int

    def render_line(self) -> str:
        """Return a line for the plan, empty when nothing was replaced."""
        counts = ((self.lora, "LoRA"), (self.mlps, "feed-forward"), (self.norms, "norm"))
        kinds = ", ".join(f"{count} {kind}" for count, kind in counts if count)
        return f"lean layers: {kinds} (lean_layers: false for the library's own)" if kinds else ""


def use_lean_layers(model: nn.Module, *, joins: bool = True) -> LeanLayers:
    """Give every layer that has one its lean forward. Weights, names and saved files stay what they were.

    Layers are told by what they are made of and by what they compute, once per class: a family whose feed-forward layer
    or norm does something else keeps its own.

    Args:
        model: With its adapters, on its device. Changed in place.
        joins: Whether LoRA layers that read the same input compute together.
    """
    adapters = [m for m in model.modules() if type(m) is PeftLoraLinear and type(m.base_layer) is nn.Linear]
    mlps = _matching(model, is_gated_silu)
    norms = _matching(model, is_plain_rms_norm)
    for module in adapters:
        module.__class__ = LeanLoraLinear
    if joins:
        share_inputs(model)
    _swap(mlps, lean_mlp_class)
    _swap(norms, lean_norm_class)
    return LeanLayers(len(adapters), len(mlps), len(norms))


def _swap(modules: Sequence[nn.Module], lean_class: Callable[[Any], Any]) -> None:
    for module in modules:
        module.__class__ = lean_class(type(module))


def _matching(model: nn.Module, is_match: Callable[[nn.Module], bool]) -> list[nn.Module]:
    verdicts: dict[type, bool] = {}
    found = []
    for module in model.modules():
        if type(module) not in verdicts:
            verdicts[type(module)] = is_match(module)
        if verdicts[type(module)]:
            found.append(module)
    return found
