"""A frozen linear layer with a LoRA adapter, with a backward pass of its own.

peft builds the same sum of five: two thin products, a scaling, a sum into a fresh tensor, each with its own backward.
What that costs on a CPU with rank 8: 28% of the time of the large products; here 7%.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from peft.tuners.lora.layer import Linear as PeftLoraLinear
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from tunesmith.models.lean.shared import SharedInput


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

    shared: "SharedInput | None" = None
    """Set where other layers read the same input."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the layer's output. Shape [..., outputs]."""
        is_plain = not args and not kwargs
        # A compiler follows no tensors from one layer to the next by way of an object.
        shared = None if torch.compiler.is_compiling() else self.shared
        if is_plain and shared is not None and (product := shared.find_product(self, x)) is not None:
            return product
        factors = find_factors(self, x) if is_plain else None
        if factors is None:
            output: Tensor = super().forward(x, *args, **kwargs)
            return output
        return lora_product(x, factors)


def find_factors(layer: PeftLoraLinear, x: Tensor) -> LoraFactors | None:
    """Return the factors of a layer in the plain case: one active adapter, no dropout, no variant, one number type."""
    name = find_plain_adapter(layer)
    if name is None or layer.disable_adapters or layer.merged or not torch.is_grad_enabled():
        return None
    base = layer.base_layer
    down, up = layer.lora_A[name].weight, layer.lora_B[name].weight
    has_one_type = x.dtype == base.weight.dtype == down.dtype == up.dtype
    if not has_one_type or torch.is_autocast_enabled(x.device.type):
        return None
    return LoraFactors(base.weight, base.bias, down, up, layer.scaling[name])


def find_plain_adapter(layer: PeftLoraLinear) -> str | None:
    """Return the name of a layer's only active adapter, if that is a plain one beside an exact, frozen weight."""
    base, names = layer.base_layer, layer.active_adapters
    if len(names) != 1:
        return None
    name: str = names[0]
    if name not in layer.lora_A or name in layer.lora_variant or layer.lora_bias[name]:
        return None
    if layer.training and not isinstance(layer.lora_dropout[name], nn.Identity):
        return None
    # Torchao's layers round their weights on the way, and its compressed weights have few operations.
    if type(base) is not nn.Linear or type(base.weight) is not nn.Parameter:
        return None
    return None if any(parameter.requires_grad for parameter in base.parameters()) else name


def lora_product(x: Tensor, factors: LoraFactors) -> Tensor:
    """Return x Wᵀ + b + scaling (x Aᵀ) Bᵀ. Shape [..., outputs]."""
    promise, rows, inner = _KeepInput.apply(x, factors.weight, factors.down, factors.up, factors.scaling)  # type: ignore[no-untyped-call]
    return finish_product(promise, rows, inner, factors).view(*x.shape[:-1], -1)


class _KeepInput(torch.autograd.Function):
    """Keeps what the backward pass of the product needs, and promises the product."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, down: Tensor, up: Tensor, scaling: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows = x.reshape(-1, x.shape[-1])
        inner = down @ rows.t()
        ctx.save_for_backward(rows, weight, down, up, inner)
        ctx.scaling, ctx.shape = scaling, x.shape
        return promise_product(ctx, rows, inner, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, down, up, inner = ctx.saved_tensors
        inner_gradient, down_gradient, up_gradient = adapter_gradients(gradient, rows, up, inner, ctx.scaling)
        to_input = None
        if ctx.needs_input_grad[0]:
            to_input = input_gradient(gradient, weight, down, inner_gradient).view(ctx.shape)
        return to_input, None, down_gradient, up_gradient, None


# A product is two nodes: one that keeps tensors and computes only A xᵀ, and one that multiplies and keeps nothing.
# Under gradient checkpointing a layer is computed again up to the last tensor that it kept: with one node that includes
# the last product of every layer, a quarter of a layer's forward pass whose result nobody reads.


def promise_product(ctx: Any, rows: Tensor, inner: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs of a keeping node: a tensor of the product's shape without memory, the rows, and A xᵀ."""
    ctx.mark_non_differentiable(rows, inner)
    ctx.set_materialize_grads(False)
    return empty_promise(rows, weight), rows, inner


def empty_promise(rows: Tensor, weight: Tensor) -> Tensor:
    """Return a tensor of a product's shape that takes no memory. Shape [tokens, outputs]."""
    return rows.new_empty(()).expand(rows.shape[0], weight.shape[0])


def finish_product(promise: Tensor, rows: Tensor, inner: Tensor, factors: LoraFactors) -> Tensor:
    """Return the product that a keeping node promised. Shape [tokens, outputs]."""
    result: Tensor = _Multiply.apply(promise, rows, inner, factors)  # type: ignore[no-untyped-call]
    return result


class _Multiply(torch.autograd.Function):
    """The product itself; its gradient is handed on to the node that promised it."""

    @staticmethod
    def forward(ctx: Any, promise: Tensor, rows: Tensor, inner: Tensor, factors: LoraFactors) -> Tensor:
        weight, bias = factors.weight, factors.bias
        output = rows @ weight.t() if bias is None else torch.addmm(bias, rows, weight.t())
        output.t().addmm_(factors.up, inner, alpha=factors.scaling)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient, None, None, None


# Thin products are written so that the long side comes last: [rank, tokens] @ [tokens, width]. BLAS takes up to seven
# times longer for the same numbers the other way round, which is the way autograd would choose.


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
