"""Noise on the embeddings in training: NEFTune (Jain et al. 2023, section 2).

Each entry of a row's embeddings moves by up to alpha / sqrt(L * d), with L tokens in the row and d entries per token.
L is the row's own number of tokens, however rows are laid out. Counting the width of the tensor instead, as the hook of
transformers does, gives rows that stand end to end, or beside a longer one, less noise than they get alone.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class EmbeddingNoise:
    """Adds noise to what an embedding returns, while a batch is under way."""

    def __init__(self, embeddings: nn.Module, alpha: float) -> None:
        """Prepare the noise.

        Args:
            embeddings: The model's input embeddings, also wrapped by peft.
            alpha: Strength; 5 to 15 is usual.
        """
        self._embeddings = embeddings
        self._alpha = alpha
        self._lengths: Tensor | None = None

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Stand by at the embeddings until the block ends; for a whole training, as compiled models watch for hooks."""
        handle = self._embeddings.register_forward_hook(self._add_noise)
        try:
            yield
        finally:
            handle.remove()

    @contextmanager
    def on(self, batch: Mapping[str, Any]) -> Iterator[None]:
        """Add noise to the embeddings of a batch until the block ends."""
        self._lengths = sample_lengths(batch)
        try:
            yield
        finally:
            self._lengths = None

    @torch.compiler.disable  # what is known of one batch would be compiled in
    def _add_noise(self, module: nn.Module, arguments: Any, embedded: Tensor) -> Tensor:
        if self._lengths is None:
            return embedded
        bounds = self._alpha / (self._lengths * embedded.shape[-1]).sqrt()
        noise = torch.empty_like(embedded).uniform_(-1.0, 1.0)
        return embedded + noise * bounds[..., None].to(embedded.dtype)


def sample_lengths(batch: Mapping[str, Any]) -> Tensor:
    """Return for every token how many tokens its own row or packed sample has. Shape [rows, tokens], float32.

    Example:
        Samples of 3 and 2 tokens end to end: `[3 3 3 2 2]`. Side by side, padded: `[3 3 3] [2 2 2]`.
    """
    ids: Tensor = batch["input_ids"]
    if "position_ids" in batch:
        sample = (batch["position_ids"] == 0).cumsum(dim=1)
        ones = torch.ones(ids.shape, device=ids.device)
        counts = torch.zeros(ids.shape[0], ids.shape[1] + 1, device=ids.device).scatter_add_(1, sample, ones)
        return counts.gather(1, sample)
    if "attention_mask" in batch:
        mask: Tensor = batch["attention_mask"]
        return mask.sum(dim=1, keepdim=True).float().expand(ids.shape)
    return torch.full(ids.shape, float(ids.shape[1]), device=ids.device)
