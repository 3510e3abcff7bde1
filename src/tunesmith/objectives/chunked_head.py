"""The output head and the loss, a chunk of labelled positions at a time.

The logits of a whole batch are the largest tensor of a training step: 2,048 positions of a 150k vocabulary are 1.2 GB
in float32, and the loss needs them three times over. Here they exist only for one chunk. The gradient is taken while a
chunk's logits are at hand, in the forward pass, so that nothing is computed twice and nothing but the gradient with
respect to the hidden states (and to the head, where it is trained) outlives the chunk.

The head is a module that is called, not a weight that is multiplied: an adapter on it, a bias, a copy kept by
`modules_to_save` and tied embeddings all work because autograd sees them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tunesmith.objectives.scaling import scale_in_place

TokenLoss = Callable[[Tensor, Tensor], Tensor]
"""(logits [items, vocabulary], labels [items]) -> loss per token [items]."""

_CHUNK_LOGITS = {"cpu": 2**24, "other": 2**27}
"""Logits of one chunk: 64 MB in float32 stay near a CPU's caches, 512 MB keep an accelerator's matrix units busy."""


class OutputHead(Protocol):
    """What turns hidden states into logits."""

    @property
    def module(self) -> nn.Module:
        """The output embedding, called with hidden states of shape [items, hidden]."""
        ...

    def transform(self, logits: Tensor) -> Tensor:
        """Scale or cap logits as the model's family does after its output embedding."""
        ...


@dataclass(frozen=True, slots=True)
class HeadLoss:
    """The loss over all labelled positions."""

    total: Tensor
    """Sum over positions, float32, differentiable. Shape []."""

    correct: Tensor | None
    """Positions whose most likely token is the label; only counted without gradients (evaluation). Shape []."""


def resolve_chunk_tokens(head: nn.Module, device: torch.device) -> int:
    """Return how many positions share one chunk: as many as the budget of the device holds, at least 32.

    Args:
        head: The output embedding, whatever adapters are wrapped around it.
        device: Where its logits are computed.
    """
    vocabulary = max((parameter.shape[0] for parameter in head.parameters() if parameter.dim() > 1), default=1)
    return max(32, _CHUNK_LOGITS["cpu" if device.type == "cpu" else "other"] // max(1, vocabulary))


def chunked_head_loss(
    hidden: Tensor, labels: Tensor, head: OutputHead, token_loss: TokenLoss, *, chunk_tokens: int
) -> HeadLoss:
    """Run head and loss over labelled positions, chunk by chunk.

    Args:
        hidden: Last hidden states of the positions that predict a label. Shape [items, hidden].
        labels: The label each of them predicts. Shape [items].
        head: The model's output head.
        token_loss: A pure loss per token.
        chunk_tokens: Positions per chunk.
    """
    if not torch.is_grad_enabled():
        return _measure_loss(hidden, labels, head, token_loss, chunk_tokens)
    parameters = [parameter for parameter in head.module.parameters() if parameter.requires_grad]
    apply: Callable[..., Tensor] = _ChunkedHeadLoss.apply
    total = apply(hidden, labels, head, token_loss, chunk_tokens, *parameters)
    return HeadLoss(total, None)


def _measure_loss(
    hidden: Tensor, labels: Tensor, head: OutputHead, token_loss: TokenLoss, chunk_tokens: int
) -> HeadLoss:
    total = torch.zeros((), dtype=torch.float32, device=hidden.device)
    correct = torch.zeros((), dtype=torch.int64, device=hidden.device)
    for start in range(0, labels.numel(), chunk_tokens):
        window = slice(start, start + chunk_tokens)
        logits = head.transform(head.module(hidden[window]))
        total += token_loss(logits, labels[window]).sum()
        correct += (logits.argmax(dim=-1) == labels[window]).sum()
    return HeadLoss(total, correct)


class _ChunkedHeadLoss(torch.autograd.Function):
    """Sum of the token losses; its gradients are made in the forward pass and scaled in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        labels: Tensor,
        head: OutputHead,
        token_loss: TokenLoss,
        chunk_tokens: int,
        *parameters: Tensor,
    ) -> Tensor:
        wants_hidden = bool(ctx.needs_input_grad[0])
        hidden_gradient = torch.zeros_like(hidden) if wants_hidden else None
        # Zeros, not None, where nothing is labelled: data parallelism waits for every trained parameter.
        gradients = [torch.zeros_like(parameter) for parameter in parameters]
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        for start in range(0, labels.numel(), chunk_tokens):
            window = slice(start, start + chunk_tokens)
            with torch.enable_grad():
                chunk = hidden[window].detach().requires_grad_(wants_hidden)
                logits = head.transform(head.module(chunk))
                loss = token_loss(logits, labels[window]).sum()
            total += loss.detach()
            sources = ([chunk] if wants_hidden else []) + list(parameters)
            found = _gradients(loss, sources)
            if hidden_gradient is not None:
                hidden_gradient[window] = found.pop(0)
            for gradient, addition in zip(gradients, found, strict=True):
                gradient.add_(addition)
        ctx.gradients = (hidden_gradient, *gradients)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        # In place, and given away: a second copy of a trained head's gradient would be the peak of the step.
        hidden_gradient, *gradients = ctx.gradients
        del ctx.gradients
        for gradient in (hidden_gradient, *gradients):
            if gradient is not None:
                scale_in_place(gradient, scale)
        return (hidden_gradient, None, None, None, None, *gradients)


def _gradients(loss: Tensor, sources: Sequence[Tensor]) -> list[Tensor]:
    """Differentiate one chunk; a parameter that the head did not use (another adapter's) gets zeros."""
    if not sources:
        return []
    found = torch.autograd.grad(loss, sources, allow_unused=True)
    return [
        torch.zeros_like(source) if gradient is None else gradient
        for source, gradient in zip(sources, found, strict=True)
    ]
