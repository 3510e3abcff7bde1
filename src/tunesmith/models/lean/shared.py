"""LoRA layers that read one input, computed together: query, key and value; gate and up.

Alone, each of them multiplies the input by a thin A of its own, and hands back a gradient as large as the input, which
autograd adds up in fresh memory. Together there is one thin product each way, and the gradient is added up in place.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tunesmith.models.lean.lora import LeanLoraLinear, LoraFactors, empty_promise, find_factors, finish_product

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of layers beside each other that families call with the same tensor, one after the other."""


def share_inputs(model: nn.Module) -> int:
    """Let siblings among the lean layers of a model compute together, and return how many do. Changed in place."""
    num_joined, desk = 0, _Desk()
    for members in _find_siblings(model):
        shared = SharedInput(members, desk)
        for member in members:
            member.shared = shared
        num_joined += len(members)
    return num_joined


def _find_siblings(model: nn.Module) -> Iterator[list[LeanLoraLinear]]:
    for parent in model.modules():
        children = dict(parent.named_children())
        for names in SIBLINGS:
            members = [child for name in names if isinstance(child := children.get(name), LeanLoraLinear)]
            if len(members) > 1 and len({member.in_features for member in members}) == 1:
                yield members


@dataclass(slots=True)
class _Begun:
    """What was computed of one input, until every layer has fetched its part."""

    group: "SharedInput"
    x: Tensor
    version: int
    """Of the input's memory, which nobody may have written to in between."""

    rows: Tensor
    parts: dict[int, tuple[Tensor, Tensor, LoraFactors]]
    """For each layer that is still to come, by its place: the promise of its product, its A xᵀ, and its factors."""

    def is_for(self, group: "SharedInput", place: int, x: Tensor) -> bool:
        """Whether this is what a layer needs of an input."""
        return self.group is group and self.x is x and self.version == x._version and place in self.parts


@dataclass(slots=True)
class _Desk:
    """The one place of a model where something begun lies.

    A pass that fails in between, as for lack of memory, leaves it there with the graph of all layers before. Were there
    a place for each group, it would lie there until the next pass comes to the same layer.
    """

    begun: _Begun | None = None


class SharedInput:
    """Computes what several layers need of one input when the first of them is called with it."""

    def __init__(self, members: Sequence[LeanLoraLinear], desk: _Desk) -> None:
        """Join layers that have the same number of inputs."""
        self._members = tuple(members)
        self._desk = desk

    def find_product(self, layer: LeanLoraLinear, x: Tensor) -> Tensor | None:
        """Return the output of one of the layers, shape [..., outputs]; `None` where they cannot be joined."""
        place = next(place for place, member in enumerate(self._members) if member is layer)
        begun = self._desk.begun
        if begun is None or not begun.is_for(self, place, x):
            begun = self._desk.begun = self._begin(x)
        if begun is None:
            return None
        promise, inner, factors = begun.parts.pop(place)
        if not begun.parts:  # nothing of a step may outlive it in here
            self._desk.begun = None
        return finish_product(promise, begun.rows, inner, factors).view(*x.shape[:-1], -1)

    def _begin(self, x: Tensor) -> _Begun | None:
        factors: list[LoraFactors] = []
        for member in self._members:
            found = find_factors(member, x)
            if found is None:
                return None
            factors.append(found)
        self._desk.begun = None  # before anything new is made
        tensors = [*(one.weight for one in factors), *(one.down for one in factors), *(one.up for one in factors)]
        rows, inner, *promises = _KeepShared.apply(x, tuple(one.scaling for one in factors), *tensors)  # type: ignore[no-untyped-call]
        inners = inner.split([one.down.shape[0] for one in factors])
        parts = dict(enumerate(zip(promises, inners, factors, strict=True)))
        return _Begun(self, x, x._version, rows, parts)


class _KeepShared(torch.autograd.Function):
    """Keeps what the backward pass of all products needs, and promises the products."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scalings: Sequence[float], *tensors: Tensor) -> tuple[Tensor, ...]:
        weights, downs, _ = _in_thirds(tensors)
        rows = x.reshape(-1, x.shape[-1])
        inner = torch.cat(tuple(downs)) @ rows.t()
        ctx.save_for_backward(rows, inner, *tensors)
        ctx.scalings, ctx.shape = scalings, x.shape
        ctx.mark_non_differentiable(rows, inner)
        ctx.set_materialize_grads(False)
        return rows, inner, *(empty_promise(rows, weight) for weight in weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _rows: None, _inner: None, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        rows, inner, *tensors = ctx.saved_tensors
        weights, downs, ups = _in_thirds(tensors)
        ranks = [down.shape[0] for down in downs]
        inner_gradient = torch.zeros_like(inner)
        to_rows: Tensor | None = None
        up_gradients: list[Tensor | None] = []
        parts = zip(torch.split(inner, ranks), torch.split(inner_gradient, ranks), strict=True)
        layers = zip(gradients, weights, ups, ctx.scalings, parts, strict=True)
        for gradient, weight, up, scaling, (own, own_gradient) in layers:
            if gradient is None:  # nobody read this layer's output
                up_gradients.append(None)
                continue
            own_gradient.addmm_(up.t(), gradient.t(), alpha=scaling)
            up_gradients.append((own @ gradient).mul_(scaling).t())
            if ctx.needs_input_grad[0]:
                to_rows = gradient @ weight if to_rows is None else to_rows.addmm_(gradient, weight)
        down_gradients = torch.split(inner_gradient @ rows, ranks)
        if to_rows is not None:
            to_rows.t().addmm_(torch.cat(tuple(downs)).t(), inner_gradient)
            to_rows = to_rows.view(ctx.shape)
        return to_rows, None, *(None for _ in weights), *down_gradients, *up_gradients


def _in_thirds(tensors: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]:
    """Return the weights, the A and the B factors, which stand one kind after the other."""
    count = len(tensors) // 3
    return tensors[:count], tensors[count : 2 * count], tensors[2 * count :]
