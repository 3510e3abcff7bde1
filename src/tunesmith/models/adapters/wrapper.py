"""A peft model that saves what belongs to its adapter, in a form that every program reads.

Two things are added to peft's saving. Beside the weights goes a record of the base model. And where an adapter began by
taking its first product out of the frozen weights (PiSSA, OLoRA, LoRA-GA), plain LoRA is saved: with the first factors
A0 and B0, the trained model is

    W - s B0 A0 + s B A = W + s [B, -B0] [A; A0],

an adapter of twice the rank on the unchanged weights. From it the run goes on, too: its halves are the factors again.
LoftQ begins with what 4-bit weights lost. On the exact weights, into which adapters are merged, just that would be too
much, so it is saved in the same way.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import LoraConfig, PeftConfig, PeftModel
from peft.tuners.lora.layer import Linear as PeftLoraLinear
from peft.utils import load_peft_weights, set_peft_model_state_dict
from torch import Tensor

from tunesmith.config.peft_methods import MOVES_WEIGHTS, SAVED_WITHOUT_BEGINNING
from tunesmith.errors import ModelError
from tunesmith.models.adapters.record import BaseRecord

ADAPTER = "default"
"""peft's name of the only adapter that is trained."""

_HALVES = ("lora_A.weight", "lora_B.weight")


class FirstFactors(NamedTuple):
    """What a layer's adapter began with, and what was taken out of its frozen weight."""

    down: Tensor
    """A0. Shape [rank, inputs]."""

    up: Tensor
    """B0. Shape [outputs, rank]."""


class KeptAdapter(PeftModel):
    """Saving and loading of an adapter in training."""

    record: BaseRecord
    first_factors: dict[str, FirstFactors]
    """By full name of the layer; empty where the adapter is saved as it is."""

    begins: str
    """How its first weights are made, see `init_lora_weights`; `default` for an adapter that goes on."""

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> None:
        """Write the adapter as any program reads it, and the record of its base."""
        folder = str(save_directory)
        if self.first_factors:
            state = options.pop("state_dict", None)
            state = dict(self.state_dict() if state is None else state)
            options["state_dict"] = widen_factors(state, self.first_factors)
            with self._described_as(widened_config(self.lora_config)):
                super().save_pretrained(folder, **options)
        else:
            super().save_pretrained(folder, **options)
        self.record.save(folder)

    def load_adapter(self, model_id: Any, adapter_name: str, **options: Any) -> Any:
        """Load saved weights into this adapter, as Trainer does to resume and to get the best ones."""
        if (
            self.begins not in SAVED_WITHOUT_BEGINNING
            or PeftConfig.from_pretrained(model_id).r != 2 * self.lora_config.r
        ):
            return super().load_adapter(model_id, adapter_name, **options)
        state = load_peft_weights(str(model_id), device="cpu")
        current, first = halve_factors(state)
        if not self.first_factors and self.begins in MOVES_WEIGHTS:
            layers = {name: layer for name, layer in self.named_modules() if isinstance(layer, PeftLoraLinear)}
            for name, factors in first.items():
                take_out(layers[name], factors)
        self.first_factors = first
        return set_peft_model_state_dict(self, current, adapter_name=adapter_name)

    @property
    def lora_config(self) -> LoraConfig:
        """Settings of the adapter, which is LoRA wherever weights are taken out."""
        config = self.peft_config[ADAPTER]
        assert isinstance(config, LoraConfig), "only LoRA takes weights out"
        return config

    @contextmanager
    def _described_as(self, config: LoraConfig) -> Iterator[None]:
        own, self.peft_config[ADAPTER] = self.peft_config[ADAPTER], config
        try:
            yield
        finally:
            self.peft_config[ADAPTER] = own


def keep_adapter(model: PeftModel, record: BaseRecord, *, begins: str = "default") -> KeptAdapter:
    """Make a peft model one that saves its record and plain LoRA; nothing else about it changes."""
    original: Any = type(model)
    model.__class__ = _kept_class(original)
    assert isinstance(model, KeptAdapter), "the class was just given"
    model.record, model.first_factors, model.begins = record, {}, begins
    return model


@lru_cache(maxsize=16)
def _kept_class(original: Any) -> type[Any]:
    return type(f"Kept{original.__name__}", (KeptAdapter, original), {})


def take_out(layer: PeftLoraLinear, factors: FirstFactors) -> None:
    """Subtract what an adapter begins with from its layer's frozen weight; the same call gives the same bits.

    Raises:
        ModelError: The factors do not fit the layer.
    """
    weight = layer.get_base_layer().weight
    product = factors.up.to(weight.device, torch.float32) @ factors.down.to(weight.device, torch.float32)
    if layer.fan_in_fan_out:
        product = product.t()
    if product.shape != weight.shape:
        raise ModelError("resume_from_checkpoint: the adapter of the checkpoint was made for another model.")
    weight.data = (weight.data.float() - layer.scaling[ADAPTER] * product).to(weight.dtype)


def widen_factors(state: Mapping[str, Tensor], first: Mapping[str, FirstFactors]) -> dict[str, Tensor]:
    """Return a state in which every pair of factors stands beside what it began with.

    Args:
        state: Weights of the whole model by name.
        first: What was taken out, by layer.
    """
    widened = dict(state)
    for layer, factors in first.items():
        down, up = f"{layer}.lora_A.{ADAPTER}.weight", f"{layer}.lora_B.{ADAPTER}.weight"
        widened[down] = torch.cat([state[down], factors.down.to(state[down])], dim=0)
        widened[up] = torch.cat([state[up], -factors.up.to(state[up])], dim=1)
    return widened


def halve_factors(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, FirstFactors]]:
    """Return the trained factors of a saved, widened adapter, and the first ones by layer; other weights stay."""
    current = dict(state)
    downs: dict[str, Tensor] = {}
    ups: dict[str, Tensor] = {}
    for name, value in state.items():
        if name.endswith(_HALVES[0]):
            current[name], downs[name.removesuffix(f".{_HALVES[0]}")] = value.chunk(2, dim=0)
        elif name.endswith(_HALVES[1]):
            current[name], up = value.chunk(2, dim=1)
            ups[name.removesuffix(f".{_HALVES[1]}")] = -up
    return current, {layer: FirstFactors(down.clone(), ups[layer].clone()) for layer, down in downs.items()}


def widened_config(config: LoraConfig) -> LoraConfig:
    """Return the settings of plain LoRA with twice the ranks and the same strength."""
    growth = sqrt(2) if config.use_rslora else 2  # the scaling divides by the square root of the rank, or by the rank
    widened = copy(config)
    widened.r = 2 * config.r
    widened.lora_alpha = config.lora_alpha * growth
    widened.rank_pattern = {name: 2 * rank for name, rank in (config.rank_pattern or {}).items()}
    widened.alpha_pattern = {name: alpha * growth for name, alpha in (config.alpha_pattern or {}).items()}
    return widened
