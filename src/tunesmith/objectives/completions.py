"""The log-probability of whole completions, for every objective that weighs completions against each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tunesmith.data.batches import LOSS_KEYS
from tunesmith.models.heads import LanguageHead, run_body
from tunesmith.objectives.base import Mean
from tunesmith.objectives.chunked_head import resolve_chunk_tokens
from tunesmith.objectives.log_probabilities import TokenValues, token_values, values_from_logits


@dataclass(frozen=True, slots=True)
class CompletionScores:
    """What a model says about the completions of a batch."""

    log_probabilities: Tensor
    """Sum over the learnt tokens of each sequence, those that LD-DPO discounts weighed less. Shape [sequences]."""

    plain_log_probabilities: Tensor
    """The sum without discount. Shape [sequences]."""

    lengths: Tensor
    """Number of learnt tokens. Shape [sequences], int64."""

    mean_logits: Tensor | None
    """Logits averaged over the vocabulary and added up over the tokens of each sequence, detached, where asked for."""

    entropies: Tensor | None
    """Entropies in nats, added up over the tokens of each sequence, detached, where asked for."""

    output: Any
    """The model's own output object (router losses and the like)."""

    @property
    def mean_log_probabilities(self) -> Tensor:
        """Log-probability per token, without discount; 0 for an empty completion. Shape [sequences]."""
        return self.plain_log_probabilities / self.lengths.clamp(min=1)


@dataclass(frozen=True, slots=True)
class CompletionScorer:
    """Runs a model over a batch of completions; policy and reference are scored by the same one."""

    head: LanguageHead
    chunk_tokens: int | None = None
    """Positions whose logits exist at the same time; `None` picks by vocabulary and device."""

    ld_alpha: float | None = None
    """Weight of the tokens that only the longer completion of a pair has; `None` for 1, and for rows without pairs."""

    def score(
        self, model: nn.Module, batch: Mapping[str, Tensor], *, with_statistics: bool = False
    ) -> CompletionScores:
        """Return the log-probability of each completion of the batch, differentiable where gradients are on.

        Args:
            model: Policy or reference, in whatever wrappers.
            batch: Of `data.batches.CompletionBatch`, on the model's device.
            with_statistics: Also return mean logits and entropies.
        """
        # With a cache transformers does not look for rows that share a line, and a reference is not told by the trainer
        # to go without.
        inputs = {**model_inputs(batch), "use_cache": False}
        positions, labels = batch["completion_positions"], batch["completion_labels"]
        if self.head.is_separable:
            run = run_body(model, self.head, inputs)
            output, values = run.output, self._read_head(run.hidden, positions, labels, with_statistics)
        else:
            output = model(**inputs)
            logits = output.logits.flatten(0, 1).index_select(0, positions.to(output.logits.device))
            values = values_from_logits(logits, labels, with_statistics=with_statistics)
        return self._add_up(values, batch, output)

    def _read_head(self, hidden: Tensor, positions: Tensor, labels: Tensor, with_statistics: bool) -> TokenValues:
        selected = hidden.flatten(0, 1).index_select(0, positions.to(hidden.device))
        chunk_tokens = self.chunk_tokens or resolve_chunk_tokens(self.head.module, hidden.device)
        return token_values(selected, labels, self.head, chunk_tokens=chunk_tokens, with_statistics=with_statistics)

    def _add_up(self, values: TokenValues, batch: Mapping[str, Tensor], output: Any) -> CompletionScores:
        sequences = batch["completion_sequences"]
        lengths = count_tokens(sequences, batch["last_positions"].numel())
        plain = _sum_by_sequence(values.log_probabilities, lengths)
        discounted = plain
        if self.ld_alpha is not None:
            weights = length_discounts(sequences, lengths, self.ld_alpha)
            discounted = _sum_by_sequence(values.log_probabilities * weights, lengths)
        mean_logits, entropies = (
            None if found is None else _sum_by_sequence(found, lengths)
            for found in (values.mean_logits, values.entropies)
        )
        return CompletionScores(discounted, plain, lengths, mean_logits, entropies, output)


def model_inputs(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the part of a batch that is for the model."""
    return {key: value for key, value in batch.items() if key not in LOSS_KEYS}


def count_tokens(sequences: Tensor, num_sequences: int) -> Tensor:
    """Return the number of tokens of each sequence, without waiting for the device. Shape [sequences], int64.

    Args:
        sequences: Number of the sequence of each token, ascending. Shape [items].
        num_sequences: Number of sequences, of which the last ones may have no token.
    """
    borders = torch.arange(num_sequences + 1, device=sequences.device)
    return torch.searchsorted(sequences, borders).diff()


def length_discounts(sequences: Tensor, lengths: Tensor, alpha: float) -> Tensor:
    """Return the weight of each token: 1 up to the length of the shorter completion of its pair, `alpha` beyond it.

    Liu et al. 2024, "Length Desensitization in Direct Preference Optimization", equation 11.

    Args:
        sequences: Number of the sequence of each token, ascending. Shape [items].
        lengths: Tokens of each sequence; those of a pair are neighbours. Shape [2 * pairs].
        alpha: Weight of the tokens beyond, 0 to 1.
    """
    starts = lengths.cumsum(0) - lengths
    places = torch.arange(sequences.numel(), device=sequences.device) - starts[sequences]
    shared = torch.minimum(lengths[0::2], lengths[1::2]).repeat_interleave(2)
    return torch.where(places < shared[sequences], 1.0, alpha)


def count_items(batch: Mapping[str, Any]) -> Tensor:
    """Return the number of pairs or rated completions of a batch, without its fillers. Shape [], int64."""
    weights: Tensor = batch["item_weights"]
    return weights.sum().long()


def mean_of(values: Tensor, counts: Tensor) -> Mean:
    """Return the mean of values, each of which stands for so many."""
    return Mean(values.detach().sum(), counts.sum())


def _sum_by_sequence(values: Tensor, lengths: Tensor) -> Tensor:
    """Add up neighbours, in the same order on every device and in every run: two equal completions get equal sums."""
    summed: Tensor = torch.segment_reduce(values, "sum", lengths=lengths, initial=0.0, unsafe=True)
    return summed
