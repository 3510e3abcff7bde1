"""Quantisation-aware training: linear layers that round their weights as the compressed model will.

Gradients go straight through the rounding to the exact weights, which stay what is trained and saved.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import torch
from peft.tuners.lora.layer import Linear as PeftLoraLinear
from torch import Tensor, nn
from torch.nn.functional import linear

from tunesmith.config.quantization import QatScheme, QuantizationConfig
from tunesmith.errors import ModelError
from tunesmith.models.heads import find_base_model
from tunesmith.runtime.files import write_json_atomic
from tunesmith.runtime.optional import require

logger = logging.getLogger(__name__)

QAT_FILE = "qat.json"
"""Beside trained weights: the scheme that they were trained for."""


@dataclass(frozen=True, slots=True)
class CompressionScheme:
    """How the weights are going to be compressed."""

    scheme: QatScheme
    group_size: int
    """Weights that share a scale; of no meaning for 8 bits, which have one scale per row."""

    @classmethod
    def of(cls, config: QuantizationConfig) -> Self | None:
        """Return the scheme of the settings, if they have one."""
        return None if config.qat is None else cls(config.qat, config.qat_group_size)

    @classmethod
    def read(cls, folder: str | Path) -> Self | None:
        """Return the scheme that the weights in a folder were trained for, if it says one."""
        file = Path(folder) / QAT_FILE
        return cls(**json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None

    def write(self, folder: str | Path) -> None:
        """Note the scheme beside trained weights."""
        write_json_atomic(Path(folder) / QAT_FILE, asdict(self))

    def build(self) -> Any:
        """Return it as torchao's configuration."""
        torchao: Any = require("torchao.quantization", "torchao", "train for fewer bits")
        granularity: Any = require("torchao.quantization.granularity", "torchao", "train for fewer bits")
        int4 = vars(torch)["int4"]  # torch's stubs do not know it
        if self.scheme == "int8-weight":
            return torchao.IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=granularity.PerAxis(0))
        groups = granularity.PerGroup(self.group_size)
        if self.scheme == "int4-weight":
            return torchao.IntxWeightOnlyConfig(weight_dtype=int4, granularity=groups)
        return torchao.Int8DynamicActivationIntxWeightConfig(weight_dtype=int4, weight_granularity=groups)


def start_rounding(model: nn.Module, scheme: CompressionScheme) -> int:
    """Have the linear layers of a model round their weights from now on; return how many do. Changed in place.

    The weights stay the same tensors, so that an optimizer goes on with them. The output head computes as before, and
    a layer with an adapter rounds the sum of both, which is what will be compressed after the merge.

    Raises:
        ModelError: The inputs of a layer do not divide into groups.
    """
    torchao: Any = require("torchao.quantization", "torchao", "train for fewer bits")
    qat: Any = require("torchao.quantization.qat", "torchao", "train for fewer bits")
    chosen = find_rounded(model)
    check_groups(chosen, scheme)
    torchao.quantize_(
        model, qat.QATConfig(scheme.build(), step="prepare"), filter_fn=lambda module, name: name in chosen
    )
    for layer in model.modules():
        if isinstance(layer, PeftLoraLinear) and type(layer.base_layer) is qat.FakeQuantizedLinear:
            layer.__class__ = RoundedLoraLinear
    logger.info("%d layers round their weights from here on: %s", len(chosen), scheme.scheme)
    return len(chosen)


def find_rounded(model: nn.Module) -> dict[str, nn.Linear]:
    """Return the linear layers whose weights will be compressed, by name: all but the head and those of adapters."""
    head = find_base_model(model).get_output_embeddings()
    heads = {id(module) for module in head.modules()} if head is not None else set()
    return {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear and id(module) not in heads and "lora_" not in name
    }


def check_groups(layers: Mapping[str, nn.Linear], scheme: CompressionScheme) -> None:
    """Prove that the inputs of every layer divide into groups that share a scale.

    Raises:
        ModelError: Those of one do not.
    """
    for name, module in layers.items():
        if scheme.scheme != "int8-weight" and module.in_features % scheme.group_size:
            raise ModelError(
                f"qat_group_size: {scheme.group_size} does not divide the {module.in_features} inputs of {name}. Set a "
                "power of two that does, such as 32."
            )


class RoundedLoraLinear(PeftLoraLinear):
    """A linear layer with a LoRA adapter that computes with the rounded sum of both.

    Rounding the frozen weight alone would train the adapter to undo another rounding than that of the merged weight: a
    toy model trained like that came out worse than one that was not trained for its compression at all.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the layer's output. Shape [..., outputs]."""
        if self.disable_adapters or self.merged:
            output: Tensor = super().forward(x, *args, **kwargs)
            return output
        base: Any = self.base_layer
        weight = base.weight.float()
        for name in self.active_adapters:
            if name in self.lora_A:
                weight = weight + self.get_delta_weight(name).float()
        rounded = base.weight_fake_quantizer(weight)
        if base.activation_fake_quantizer is not None:
            x = base.activation_fake_quantizer(x)
        return linear(x, rounded.to(x.dtype), base.bias)
