"""The size of what a run saves, in bytes."""

from collections.abc import Iterable, Mapping
from typing import Any

from peft import PeftModel
from torch import Tensor, nn


def saved_bytes(model: nn.Module) -> int:
    """Return the size of the weights that are saved: those of the adapter, or all."""
    return trained_bytes(model) if isinstance(model, PeftModel) else _total(model.parameters())


def trained_bytes(model: nn.Module) -> int:
    """Return the size of the weights that are trained."""
    return _total(parameter for parameter in model.parameters() if parameter.requires_grad)


def state_bytes(optimizer: Any) -> int:
    """Return the size of what an optimizer keeps of the weights, as far as it keeps it in tensors of its own."""
    kept = [each for each in optimizer.state.values() if isinstance(each, Mapping)]
    return _total(value for each in kept for value in each.values() if isinstance(value, Tensor))


def _total(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
