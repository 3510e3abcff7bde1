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

from tunesmith.models.lean.lora import adapter_gradients, add_adapter, find_factors, input_gradient


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
        result: Tensor = _GatedLoraProduct.apply(gate, up, *factors)  # type: ignore[no-untyped-call]
        return result


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


class _GatedLoraProduct(torch.autograd.Function):
    """`LoraProduct` of silu(gate) * up, which is not kept."""

    @staticmethod
    def forward(  # noqa: PLR0913, PLR0917 - autograd hands tensors over one by one
        ctx: Any,
        gate: Tensor,
        up: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        lora_down: Tensor,
        lora_up: Tensor,
        scaling: float,
    ) -> Tensor:
        width = gate.shape[-1]
        rows = silu(gate).mul_(up).reshape(-1, width)
        output = rows @ weight.t() if bias is None else torch.addmm(bias, rows, weight.t())
        inner = add_adapter(output, rows, lora_down, lora_up, scaling)
        ctx.save_for_backward(gate, up, weight, lora_down, lora_up, inner)
        ctx.scaling = scaling
        return output.view(*gate.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gate, up, weight, lora_down, lora_up, inner = ctx.saved_tensors
        gradient = gradient.reshape(-1, gradient.shape[-1])
        activated = silu(gate)
        rows = (activated * up).reshape(-1, gate.shape[-1])
        inner_gradient, down_gradient, up_gradient = adapter_gradients(gradient, rows, lora_up, inner, ctx.scaling)
        del rows
        to_product = input_gradient(gradient, weight, lora_down, inner_gradient).view(gate.shape)
        to_up = activated.mul_(to_product)
        to_gate = torch.ops.aten.silu_backward(to_product.mul_(up), gate)
        return to_gate, to_up, None, None, down_gradient, up_gradient, None
