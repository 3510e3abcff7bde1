"""What a model is made of, by name: the vocabulary that settings such as `lora_target` speak."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from tunesmith.errors import ModelError
from tunesmith.models.reward.head import ScoreLinear

_ATTENTION = re.compile(r"attn|attention")
ROUTERS = frozenset({"gate", "router", "shared_expert_gate"})
# Layers of quantised weights that are no subclass of PyTorch's, by class name: their packages may be absent.
_COMPRESSED = frozenset({"HQQLinear", "EetqLinear", "BaseQuantLinear", "QuantizedLinear", "VQuantLinear"})


@dataclass(frozen=True, slots=True)
class NamedLinear:
    """One linear layer of a model."""

    name: str
    """Full dotted name."""

    @property
    def leaf(self) -> str:
        """Last part of the name, which repeats from layer to layer."""
        return self.name.rpartition(".")[2]

    @property
    def is_attention(self) -> bool:
        """Whether it lies inside an attention module."""
        return any(_ATTENTION.search(part) for part in self.name.split(".")[:-1])

    @property
    def is_in_layers(self) -> bool:
        """Whether it lies inside a numbered layer."""
        return any(part.isdigit() for part in self.name.split("."))


def list_linears(model: PreTrainedModel) -> list[NamedLinear]:
    """Return the linear layers that an adapter can be put on: all but the head and the routers of experts."""
    head = model.get_output_embeddings()
    found = []
    for name, module in model.named_modules():
        if not is_linear(module) or module is head or isinstance(module, ScoreLinear):
            continue
        linear = NamedLinear(name)
        if linear.leaf not in ROUTERS:
            found.append(linear)
    return found


def is_linear(module: nn.Module) -> bool:
    """Whether a module multiplies by a matrix, kept exactly or compressed."""
    if isinstance(module, nn.Linear | Conv1D):
        return True
    return any(cls.__name__ in _COMPRESSED for cls in type(module).__mro__)


def list_norms(model: PreTrainedModel) -> list[str]:
    """Return the names of the normalisation layers, by what they are called in every family."""
    return [
        name
        for name, module in model.named_modules()
        if ("norm" in name.rpartition(".")[2] or name.rpartition(".")[2].startswith("ln_"))
        and not list(module.children())
        and any(True for _ in module.parameters())
    ]


def list_routers(model: PreTrainedModel) -> tuple[list[str], list[str]]:
    """Return what chooses experts: names of linear layers, and of weights of modules that are none."""
    linears: list[str] = []
    weights: list[str] = []
    for name, module in model.named_modules():
        if name.rpartition(".")[2] not in ROUTERS:
            continue
        if isinstance(module, nn.Linear):
            linears.append(name)
        elif any(own == "weight" and value.dim() == 2 for own, value in module.named_parameters(recurse=False)):
            weights.append(f"{name}.weight")
    return linears, weights


def list_expert_parameters(model: PreTrainedModel) -> list[str]:
    """Return the names of fused expert weights: one parameter of three dimensions for all experts of a layer."""
    return [name for name, value in model.named_parameters() if value.dim() == 3 and "experts" in name.split(".")]


def find_layers(model: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """Return the stack of layers of the language model, with its name.

    Raises:
        ModelError: The model has none.
    """
    decoder = model.get_decoder()
    stacks = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    inside = {id(module) for module in decoder.modules()}
    stacks = [(name, module) for name, module in stacks if id(module) in inside and len(module) > 0]
    if not stacks:
        raise ModelError(f"finetuning_type: {type(model).__name__} has no list of layers. Use lora or full.")
    return max(stacks, key=lambda pair: sum(value.numel() for value in pair[1].parameters()))


def matches(name: str, wanted: str) -> bool:
    """Whether a dotted name is, or ends in, the wanted one."""
    return name == wanted or name.endswith("." + wanted)


def sorted_leaves(names: Iterable[str]) -> list[str]:
    """Return the distinct last parts of dotted names, in order of appearance."""
    return list(dict.fromkeys(name.rpartition(".")[2] for name in names))


def resolve_module_names(model: PreTrainedModel, names: Sequence[str], setting: str) -> list[str]:
    """Return the full names of the modules that are, or end in, the wanted names.

    Raises:
        ModelError: Some match nothing; the message lists what there is.
    """
    present = [name for name, _ in model.named_modules() if name]
    missing = [wanted for wanted in names if not any(matches(name, wanted) for name in present)]
    if missing:
        outside = [name for name in present if not any(part.isdigit() for part in name.split("."))]
        inside = sorted_leaves(name for name in present if name not in outside)
        raise ModelError(
            f"{setting}: {_quoted(missing)} matches no module of {type(model).__name__}. Outside its layers it has "
            f"{', '.join(outside)}; inside them {', '.join(inside)}."
        )
    return [name for name in present if any(matches(name, wanted) for wanted in names)]


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
