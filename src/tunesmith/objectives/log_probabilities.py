"""Log-probabilities of chosen positions, a chunk of positions at a time and never from the logits of a whole batch.

A loss over next tokens is a plain sum, so its gradient can be made while a chunk's logits are at hand. Losses over
preferences weigh whole completions against each other: the weight of a token is known only when all of them are added
up. But a token's log-probability depends on its own hidden state alone, so its derivative by that state can be kept,
one row of `hidden` numbers instead of one of `vocabulary`, and be weighed afterwards. Nothing is computed twice unless
the head itself is trained: then its chunks are computed once more in the backward pass.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from tunesmith.objectives.chunked_head import OutputHead
from tunesmith.objectives.losses.log_probability import token_entropy, token_log_probability
from tunesmith.objectives.scaling import scale_in_place


@dataclass(frozen=True, slots=True)
class TokenValues:
    """What the head says about each label."""

    log_probabilities: Tensor
    """Differentiable, float32. Shape [items]."""

    mean_logits: Tensor | None = None
    """Mean over the vocabulary, detached, where it was asked for. Shape [items]."""

    entropies: Tensor | None = None
    """Entropy of the distribution in nats, detached, where it was asked for. Shape [items]."""


def token_values(
    hidden: Tensor, labels: Tensor, head: OutputHead, *, chunk_tokens: int, with_statistics: bool = False
) -> TokenValues:
    """Return log-probabilities, and with `with_statistics` what metrics show of the distributions.

    Args:
        hidden: Last hidden states of the positions that predict a label. Shape [items, hidden].
        labels: The label each of them predicts. Shape [items].
        head: The model's output head.
        chunk_tokens: Positions whose logits exist at the same time.
        with_statistics: Also return mean logits and entropies, which costs a few percent of time.
    """
    parameters = [parameter for parameter in head.module.parameters() if parameter.requires_grad]
    read = _ChunkReader(head, with_statistics=with_statistics)
    if not torch.is_grad_enabled():
        return _join([read(*chunk) for chunk in _chunks(hidden, labels, chunk_tokens)])
    if parameters:
        return _join([_recomputed(read, *chunk) for chunk in _chunks(hidden, labels, chunk_tokens)])
    apply: Callable[..., tuple[Tensor, Tensor | None, Tensor | None]] = _FrozenHead.apply
    return TokenValues(*apply(hidden, labels, read, chunk_tokens))


def values_from_logits(logits: Tensor, labels: Tensor, *, with_statistics: bool = False) -> TokenValues:
    """Return the same for logits that are at hand, which a model whose head cannot be taken apart gives.

    Args:
        logits: Unnormalised scores, transformed as the family does. Shape [items, vocabulary].
        labels: Shape [items].
        with_statistics: Also return mean logits and entropies.
    """
    values = token_log_probability(logits, labels)
    if not with_statistics:
        return TokenValues(values)
    with torch.no_grad():
        own = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        entropies = token_entropy(logits, own.to(values.dtype) - values)
        return TokenValues(values, logits.mean(dim=-1, dtype=torch.float32), entropies)


@dataclass(frozen=True, slots=True)
class _ChunkReader:
    head: OutputHead
    with_statistics: bool

    def __call__(self, hidden: Tensor, labels: Tensor) -> TokenValues:
        logits = self.head.transform(self.head.module(hidden))
        return values_from_logits(logits, labels, with_statistics=self.with_statistics)


def _chunks(hidden: Tensor, labels: Tensor, chunk_tokens: int) -> list[tuple[Tensor, Tensor]]:
    """Cut both alike; without labels one empty chunk, so that a trained head takes part in every step."""
    return list(zip(torch.split(hidden, chunk_tokens), torch.split(labels, chunk_tokens), strict=True))


def _join(parts: list[TokenValues]) -> TokenValues:
    return TokenValues(
        torch.cat([part.log_probabilities for part in parts]),
        _cat([part.mean_logits for part in parts]),
        _cat([part.entropies for part in parts]),
    )


def _cat(parts: list[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present) if present else None


def _recomputed(read: _ChunkReader, hidden: Tensor, labels: Tensor) -> TokenValues:
    """Read a chunk whose logits are given up at once and made again for the backward pass."""

    def run(states: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        values = read(states, labels)
        return values.log_probabilities, values.mean_logits, values.entropies

    return TokenValues(*checkpoint(run, hidden, use_reentrant=False))


class _FrozenHead(torch.autograd.Function):
    """Log-probabilities through a head that is not trained; what is kept is their derivative by each hidden state."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, labels: Tensor, read: _ChunkReader, chunk_tokens: int
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        wants_hidden = bool(ctx.needs_input_grad[0])
        derivative = torch.empty_like(hidden) if wants_hidden else None
        parts: list[TokenValues] = []
        start = 0
        for states, targets in _chunks(hidden, labels, chunk_tokens):
            with torch.enable_grad():
                chunk = states.detach().requires_grad_(wants_hidden)
                values = read(chunk, targets)
                total = values.log_probabilities.sum()
            if derivative is not None:
                # Each value depends on its own row alone, so the rows of the sum's gradient are the derivatives.
                found = torch.autograd.grad(total, chunk)[0]
                derivative[start : start + len(targets)] = found
            parts.append(replace(values, log_probabilities=values.log_probabilities.detach()))
            start += len(targets)
        ctx.derivative = derivative
        joined = _join(parts)
        extras = [value for value in (joined.mean_logits, joined.entropies) if value is not None]
        ctx.mark_non_differentiable(*extras)
        return joined.log_probabilities, joined.mean_logits, joined.entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scales: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        derivative = ctx.derivative
        del ctx.derivative
        if derivative is not None:
            scale_in_place(derivative, scales)
        return derivative, None, None, None
