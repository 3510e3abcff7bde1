"""Root mean square normalisation with a frozen weight: one autograd node that keeps its input and a number per row."""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class LeanRmsNorm(nn.Module):
    """Forward of an RMS norm; a trained weight is left to the original."""

    weight: Tensor
    variance_epsilon: float

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised input. Shape like `x`."""
        if self.weight.requires_grad or torch.is_autocast_enabled(x.device.type):
            output: Tensor = super().forward(x)
            return output
        if not torch.is_grad_enabled():  # the same numbers, so that a policy equals its reference
            normalized, _ = _normalize(x, self.variance_epsilon)
            return normalized.mul_(self.weight)
        result: Tensor = _RmsNorm.apply(x, self.weight, self.variance_epsilon)  # type: ignore[no-untyped-call]
        return result


@lru_cache(maxsize=64)
def lean_norm_class(original: type[Any]) -> type[Any]:
    """Return a subclass of an RMS norm's class with the lean forward."""
    return type(f"Lean{original.__name__}", (LeanRmsNorm, original), {})


def is_plain_rms_norm(module: nn.Module) -> bool:
    """Whether a layer is `weight * x / rms(x)`, by its parts and by its numbers; Gemma's adds one to the weight."""
    epsilon = vars(module).get("variance_epsilon")
    if [name for name, _ in module.named_parameters()] != ["weight"] or not isinstance(epsilon, float):
        return False
    weight = next(module.parameters())
    if weight.dim() != 1:
        return False
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((3, weight.shape[0]), generator=generator).to(weight.device, weight.dtype)
    with torch.no_grad():
        normalized, _ = _normalize(x, epsilon)
        return torch.allclose(module(x), normalized * weight, rtol=1e-5, atol=1e-6)


def _normalize(x: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return x divided by its root mean square, in the type of x, and the factor in fp32, shape [..., 1]."""
    factor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    factor = factor.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
    return (x * factor).to(x.dtype), factor


class _RmsNorm(torch.autograd.Function):
    """weight * x / rms(x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        normalized, factor = _normalize(x, epsilon)
        ctx.save_for_backward(x, weight, factor)
        return normalized.mul_(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, factor = ctx.saved_tensors
        # d/dx of x f(x), f = 1 / rms: the part along the gradient, and the part of f along x.
        scaled = (gradient * weight).float()
        along = (scaled * x).sum(dim=-1, keepdim=True).mul_(factor.pow(3)).div_(-x.shape[-1])
        return scaled.mul_(factor).addcmul_(x.float(), along).to(x.dtype), None, None
