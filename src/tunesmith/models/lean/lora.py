"""A frozen linear layer with a LoRA adapter, as one autograd node.

peft builds the same sum of five: two thin products, a scaling, a sum into a fresh tensor, each with its own backward.
What that costs on a CPU with rank 8: 28% of the time of the large products; here 7%.
"""

from typing import Any, NamedTuple

import torch
from peft.tuners.lora.layer import Linear as PeftLoraLinear
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class LoraFactors(NamedTuple):
    """What the product needs of a layer."""

    weight: Tensor
    """Frozen. Shape [outputs, inputs]."""

    bias: Tensor | None
    """Frozen. Shape [outputs]."""

    down: Tensor
    """LoRA A. Shape [rank, inputs]."""

    up: Tensor
    """LoRA B. Shape [outputs, rank]."""

    scaling: float


class LeanLoraLinear(PeftLoraLinear):
    """peft's LoRA layer with a leaner forward for the plain case; everything else is peft's."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the layer's output. Shape [..., outputs]."""
        factors = None if args or kwargs else find_factors(self, x)
        if factors is None:
            output: Tensor = super().forward(x, *args, **kwargs)
            return output
        result: Tensor = LoraProduct.apply(x, *factors)  # type: ignore[no-untyped-call]
        return result


def find_factors(layer: PeftLoraLinear, x: Tensor) -> LoraFactors | None:
    """Return the factors of a layer in the plain case: one active adapter, no dropout, no variant, one number type."""
    base = layer.base_layer
    names = layer.active_adapters
    if len(names) != 1 or layer.disable_adapters or layer.merged or not torch.is_grad_enabled():
        return None
    (name,) = names
    if name not in layer.lora_A or name in layer.lora_variant or layer.lora_bias[name]:
        return None
    if layer.training and not isinstance(layer.lora_dropout[name], nn.Identity):
        return None
    down, up = layer.lora_A[name].weight, layer.lora_B[name].weight
    has_one_type = x.dtype == base.weight.dtype == down.dtype == up.dtype
    is_frozen = not any(parameter.requires_grad for parameter in base.parameters())
    if not has_one_type or not is_frozen or torch.is_autocast_enabled(x.device.type):
        return None
    return LoraFactors(base.weight, base.bias, down, up, layer.scaling[name])


class LoraProduct(torch.autograd.Function):
    """y = x Wᵀ + b + scaling (x Aᵀ) Bᵀ."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, down: Tensor, up: Tensor, scaling: float
    ) -> Tensor:
        """Return y, shape [..., outputs], and keep x and A xᵀ."""
        rows = x.reshape(-1, x.shape[-1])
        output = rows @ weight.t() if bias is None else torch.addmm(bias, rows, weight.t())
        inner = add_adapter(output, rows, down, up, scaling)
        ctx.save_for_backward(rows, weight, down, up, inner)
        ctx.scaling, ctx.shape = scaling, x.shape
        return output.view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, A and B."""
        rows, weight, down, up, inner = ctx.saved_tensors
        gradient = gradient.reshape(-1, gradient.shape[-1])
        inner_gradient, down_gradient, up_gradient = adapter_gradients(gradient, rows, up, inner, ctx.scaling)
        to_input = None
        if ctx.needs_input_grad[0]:
            to_input = input_gradient(gradient, weight, down, inner_gradient).view(ctx.shape)
        return to_input, None, None, down_gradient, up_gradient, None


# Thin products are written so that the long side comes last: [rank, tokens] @ [tokens, width]. BLAS takes up to seven
# times longer for the same numbers the other way round, which is the way autograd would choose.


def add_adapter(output: Tensor, rows: Tensor, down: Tensor, up: Tensor, scaling: float) -> Tensor:
    """Add the adapter's part to `output` in place and return A xᵀ, shape [rank, tokens]."""
    inner = down @ rows.t()
    output.t().addmm_(up, inner, alpha=scaling)
    return inner


def adapter_gradients(
    gradient: Tensor, rows: Tensor, up: Tensor, inner: Tensor, scaling: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients with respect to A xᵀ, A and B, from that of the output, shape [tokens, outputs]."""
    inner_gradient = (up.t() @ gradient.t()).mul_(scaling)
    return inner_gradient, inner_gradient @ rows, (inner @ gradient).mul_(scaling).t()


def input_gradient(gradient: Tensor, weight: Tensor, down: Tensor, inner_gradient: Tensor) -> Tensor:
    """Return the gradient with respect to the input rows. Shape [tokens, inputs]."""
    to_rows = gradient @ weight
    to_rows.t().addmm_(down.t(), inner_gradient)
    return to_rows
