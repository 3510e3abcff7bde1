"""The gated feed-forward layer, without keeping what is cheap to make again.

Of `down(silu(gate) * up)` autograd keeps gate, up, silu(gate) and their product, each as wide as the layer, in every
layer: more than half of all activations. Here the last two are made again in the backward pass, which costs two passes
over memory and no matrix product.
"""

from functools import lru_cache
from typing import Any

import torch
from peft.tuners.lora.layer import Linear as PeftLoraLinear
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import silu

from tunesmith.models.lean.lora import (
    adapter_gradients,
    find_factors,
    find_plain_adapter,
    finish_product,
    input_gradient,
    promise_product,
)


class LeanGatedMlp(nn.Module):
    """Forward of a gated layer with LoRA on its last projection; other cases are computed in the ordinary way."""

    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output. Shape [..., hidden]."""
        gate, up = self.gate_proj(x), self.up_proj(x)
        factors = find_factors(self.down_proj, gate) if isinstance(self.down_proj, PeftLoraLinear) else None
        if factors is None:
            output: Tensor = self.down_proj(silu(gate) * up)
            return output
        promise, rows, inner = _KeepGated.apply(gate, up, factors.weight, factors.down, factors.up, factors.scaling)  # type: ignore[no-untyped-call]
        return finish_product(promise, rows, inner, factors).view(*gate.shape[:-1], -1)

    @property
    def keeps_less(self) -> bool:
        """Whether the last projection is one whose input is made again instead of kept."""
        return isinstance(self.down_proj, PeftLoraLinear) and find_plain_adapter(self.down_proj) is not None


@lru_cache(maxsize=64)
def lean_mlp_class(original: type[Any]) -> type[Any]:
    """Return a subclass of a gated layer's class with the lean forward."""
    return type(f"Lean{original.__name__}", (LeanGatedMlp, original), {})


def is_gated_silu(module: nn.Module) -> bool:
    """Whether a layer is `down_proj(silu(gate_proj(x)) * up_proj(x))`, by its parts and by its numbers."""
    children = dict(module.named_children())
    if not {"gate_proj", "up_proj", "down_proj"} <= children.keys():
        return False
    weight = next(module.parameters())
    if not weight.is_floating_point():  # packed by a quantisation
        return False
    inputs = int(vars(children["gate_proj"])["in_features"])
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((1, 3, inputs), generator=generator).to(weight.device, weight.dtype)
    with torch.no_grad():
        expected = children["down_proj"](silu(children["gate_proj"](x)) * children["up_proj"](x))
        return torch.equal(module(x), expected)


class _KeepGated(torch.autograd.Function):
    """Promises the LoRA product of silu(gate) * up, which is not kept."""

    @staticmethod
    def forward(
        ctx: Any, gate: Tensor, up: Tensor, weight: Tensor, lora_down: Tensor, lora_up: Tensor, scaling: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows = silu(gate).mul_(up).reshape(-1, gate.shape[-1])
        inner = lora_down @ rows.t()
        ctx.save_for_backward(gate, up, weight, lora_down, lora_up, inner)
        ctx.scaling = scaling
        return promise_product(ctx, rows, inner, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        gate, up, weight, lora_down, lora_up, inner = ctx.saved_tensors
        activated = silu(gate)
        rows = (activated * up).reshape(-1, gate.shape[-1])
        inner_gradient, down_gradient, up_gradient = adapter_gradients(gradient, rows, lora_up, inner, ctx.scaling)
        del rows
        to_product = input_gradient(gradient, weight, lora_down, inner_gradient).view(gate.shape)
        to_up = activated.mul_(to_product)
        to_gate = torch.ops.aten.silu_backward(to_product.mul_(up), gate)
        return to_gate, to_up, None, down_gradient, up_gradient, None
