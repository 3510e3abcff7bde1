"""Attention for rows that hold several samples: one causal attention per sample instead of one dense masked square.

Dense attention over a flat batch computes every pair of tokens and throws most away: 16 samples of 128 tokens cost
13 times the processor time of this module. The borders of the samples are read once per forward, from the mask rule
that transformers hands to every mask builder, and travel to the layers in place of a mask tensor.

Samples may also share their beginning: with `branch_lengths` a row is read as groups of a prompt and the branches that
go on from it, see `branches`.

Importing this module registers the implementation `tunesmith_segments` with transformers.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

from tunesmith.models.branches import BranchLengths, check_branches, join_sequences, split_sequences

_T = TypeVar("_T")

SEGMENTS = "tunesmith_segments"
"""Name of this attention in `attn_implementation`."""


@dataclass(frozen=True, eq=False, slots=True)
class Segments:
    """Where samples begin and end in every row of a batch; stands in for a mask tensor."""

    lengths: tuple[tuple[int, ...], ...]
    """Tokens of each sample, per row; every row adds up to the same number."""

    window: int | None = None
    """Sliding window in tokens, the token itself included, for layers that have one."""

    _made: dict[Hashable, Any] = field(default_factory=dict)
    _checked: list["Segments"] = field(default_factory=list)

    @property
    def is_plain(self) -> bool:
        """Whether every row is one sample without a window that matters: ordinary causal attention."""
        return all(len(row) == 1 for row in self.lengths) and not self.is_windowed(self.lengths[0][0])

    def is_windowed(self, length: int) -> bool:
        """Whether a sample of this length is longer than the window."""
        return self.window is not None and length > self.window

    def checked_against(self, borders: Tensor | None, position_ids: Tensor | None) -> "Segments":
        """Return the samples that the model's other arguments tell of, worked out for the first layer only.

        The mask rule knows nothing of packing when a cache object was made (`use_cache` left on) and never sees
        `cu_seq_lens_q`; taking one long sample for granted then would mix samples in silence.
        """
        if any(len(row) > 1 for row in self.lengths):
            return self
        if not self._checked:
            rows = self.lengths
            if borders is not None and len(rows) == 1:
                rows = (tuple(b - a for a, b in pairwise(borders.tolist()) if b > a),)
            elif position_ids is not None and position_ids.dim() == 2:
                rows = _lengths_of_runs(position_ids.diff(dim=-1) == 1, len(rows))
            self._checked.append(Segments(rows, self.window))
        return self._checked[0]

    def remember(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return what the first layer that asked for it made; these borders last for one forward pass."""
        if key not in self._made:
            self._made[key] = make()
        made: _T = self._made[key]
        return made

    def band(self, length: int, device: torch.device) -> Tensor:
        """Return which keys a query of a windowed sample sees. Shape [length, length], bool; built once per length."""
        window = self.window
        assert window is not None, "only windowed samples have a band"

        def make() -> Tensor:
            positions = torch.arange(length, device=device)
            distance = positions[:, None] - positions[None, :]
            return (distance >= 0) & (distance < window)

        return self.remember(length, make)


def build_segments_mask(**arguments: Any) -> Segments | Tensor | None:
    """Build the mask argument of the layers, as transformers' `AttentionMaskInterface` asks for it.

    Returns:
        `Segments` for whole causal sequences, packed or not; otherwise what transformers' own sdpa builds: a mask
        tensor, or `None` for ordinary causal attention.
    """
    segments = find_segments(**arguments)
    if segments is not None:
        return segments
    mask: Tensor | None = sdpa_mask(**arguments)
    return mask


def find_segments(  # noqa: PLR0913 - the names are transformers'
    *,
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Tensor] = causal_mask_function,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    **kwargs: Any,
) -> Segments | None:
    """Return the samples of a batch from what transformers hands to a mask builder.

    Returns:
        `None` where a batch has a padding mask or a cached past, or looks ahead.
    """
    is_whole = q_length == kv_length and isinstance(q_offset, int) and q_offset == kv_offset == 0
    if attention_mask is not None or not is_whole or kwargs.get("use_vmap", False):
        return None
    return _read_rule(batch_size, q_length, mask_function, local_size, torch.device(kwargs.get("device", "cpu")))


def _read_rule(
    batch_size: int, length: int, mask_function: Callable[..., Tensor], window: int | None, device: torch.device
) -> Segments | None:
    """Read samples off a mask rule by asking it about neighbours only, or return `None` if it looks ahead.

    A rule made of causal, sliding, chunked and packed parts breaks the chain "I see the token before me" exactly at the
    borders, and never shows a token its right neighbour; overlays for images do.
    """
    if mask_function is causal_mask_function or length == 1:
        return Segments(((length,),) * batch_size, window)
    rows = torch.arange(batch_size, device=device)[:, None]
    heads = torch.zeros((1, 1), dtype=torch.long, device=device)
    later = torch.arange(1, length, device=device)[None, :]
    earlier = later - 1
    looks_ahead = mask_function(rows, heads, earlier, later).any().expand(batch_size, 1)
    joined = mask_function(rows, heads, later, earlier).expand(batch_size, length - 1)
    answers = torch.cat([looks_ahead, joined], dim=1).cpu()  # at once: each transfer waits for the device
    if answers[:, 0].any():
        return None
    return Segments(_lengths_of_runs(answers[:, 1:], batch_size), window)


def _lengths_of_runs(joined: Tensor, num_rows: int) -> tuple[tuple[int, ...], ...]:
    """Turn "this token belongs to the same sample as the one before", shape [rows or 1, tokens - 1], into lengths."""
    borders: list[list[int]] = [[] for _ in range(joined.shape[0])]
    for row, before in (~joined.cpu()).nonzero().tolist():
        borders[row].append(before + 1)
    length = joined.shape[1] + 1
    lengths = tuple(tuple(b - a for a, b in pairwise([0, *row, length])) for row in borders)
    return lengths if len(lengths) == num_rows else lengths * num_rows


@dataclass(frozen=True, slots=True)
class _Scores:
    """How scores become weights: what every sample of a call has in common."""

    dropout: float
    scaling: float | None
    softcap: float | None
    sinks: Tensor | None

    @property
    def is_plain(self) -> bool:
        """Whether PyTorch's fused attention can compute it."""
        return self.softcap is None and self.sinks is None


def segments_attention(  # noqa: PLR0913, PLR0917 - the signature is transformers'
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Segments | Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend within each sample, as transformers' `AttentionInterface` asks for it.

    Args:
        module: The attention layer.
        query: Shape [batch, heads, tokens, width].
        key: Shape [batch, key-value heads, tokens, width].
        value: Shape like `key`.
        attention_mask: What `build_segments_mask` made for this layer.
        dropout: Probability; 0 outside training.
        scaling: Factor on the scores; 1/sqrt(width) by default.
        softcap: Bound on the scores (Gemma 2).
        kwargs: What else the model passes down: `cu_seq_lens_q`, `position_ids`, `s_aux` (attention sinks),
            `branch_lengths`.

    Returns:
        The attended values, shape [batch, tokens, heads, width], and no weights.

    Raises:
        ValueError: `branch_lengths` is given for a batch that it does not describe.
    """
    scores = _Scores(dropout, scaling, softcap, kwargs.get("s_aux"))
    branch_lengths: BranchLengths | None = kwargs.get("branch_lengths")
    if branch_lengths is not None:
        check_branches(branch_lengths, query, is_causal=isinstance(attention_mask, Segments))
        assert isinstance(attention_mask, Segments), "checked above"
        return _attend_branches(query, key, value, branch_lengths, attention_mask, scores), None
    if not isinstance(attention_mask, Segments):
        return _attend_as_sdpa(module, query, key, value, attention_mask, scores, **kwargs), None
    segments = attention_mask.checked_against(kwargs.get("cu_seq_lens_q"), kwargs.get("position_ids"))
    if segments.is_plain:
        return _attend(query, key, value, None, scores).contiguous(), None
    if query.shape[0] == 1:
        return _attend_row(query, key, value, segments, 0, scores), None
    rows = zip(torch.split(query, 1), torch.split(key, 1), torch.split(value, 1), strict=True)
    return torch.cat([_attend_row(q, k, v, segments, row, scores) for row, (q, k, v) in enumerate(rows)]), None


def _attend_as_sdpa(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scores: _Scores,
    **kwargs: Any,
) -> Tensor:
    """Padded batches and decoding: transformers' sdpa, or the same in plain operations where sdpa refuses."""
    if scores.is_plain:
        output: Tensor = sdpa_attention_forward(
            module, query, key, value, mask, dropout=scores.dropout, scaling=scores.scaling, **kwargs
        )[0]
        return output
    return _attend(query, key, value, mask, scores).contiguous()


def _attend_row(query: Tensor, key: Tensor, value: Tensor, segments: Segments, row: int, scores: _Scores) -> Tensor:
    """Attend within each sample of one row. Shape [1, tokens, heads, width]."""
    lengths = segments.lengths[row]
    # One split, not one slice per sample: the gradient of a split is one concatenation, that of a slice is a zero
    # tensor of the whole row, which alone doubles the time of 16 samples.
    queries, keys, values = (torch.split(each, list(lengths), 2) for each in (query, key, value))
    parts = zip(queries, keys, values, lengths, strict=True)
    attended = []
    for q, k, v, length in parts:
        band = segments.band(length, query.device) if segments.is_windowed(length) else None
        attended.append(_attend(q, k, v, band, scores))
    return torch.cat(attended, dim=1)


def _attend_branches(
    query: Tensor, key: Tensor, value: Tensor, groups: BranchLengths, segments: Segments, scores: _Scores
) -> Tensor:
    """Attend within each prompt followed by each of its branches. Shape [1, tokens, heads, width]."""
    attended = []
    for q, k, v in zip(*(split_sequences(each, groups) for each in (query, key, value)), strict=True):
        length = q.shape[2]
        band = segments.band(length, query.device) if segments.is_windowed(length) else None
        attended.append(_attend(q, k, v, band, scores))
    return join_sequences(attended, groups)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scores: _Scores) -> Tensor:
    """Attend causally, or as the mask says. Shape [batch, tokens, heads, width]."""
    if not scores.is_plain:
        return _attend_explicitly(query, key, value, mask, scores).transpose(1, 2)
    groups = query.shape[1] // key.shape[1]
    if mask is not None and groups > 1:  # fused kernels take grouped heads or a mask, not both
        key, value, groups = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1), 1
    return scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        dropout_p=scores.dropout,
        scale=scores.scaling,
        is_causal=mask is None,
        enable_gqa=groups > 1,
    ).transpose(1, 2)


def _attend_explicitly(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scores: _Scores) -> Tensor:
    """Attention with a soft cap or sinks, one operation after the other. Shape [batch, heads, tokens, width]."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scaling = scores.scaling if scores.scaling is not None else query.shape[-1] ** -0.5
    weights = query @ key.transpose(2, 3) * scaling
    if scores.softcap is not None:
        weights = torch.tanh(weights / scores.softcap) * scores.softcap
    num_queries, num_keys = weights.shape[-2:]
    if mask is None and num_queries > 1:
        mask = weights.new_ones((num_queries, num_keys), dtype=torch.bool).tril()
    if mask is not None and mask.dtype == torch.bool:
        weights = weights.masked_fill(~mask, torch.finfo(weights.dtype).min)
    elif mask is not None:
        weights = weights + mask
    if scores.sinks is not None:  # one more column per head that takes weight and gives nothing
        sinks = scores.sinks.to(weights.dtype).view(1, -1, 1, 1).expand(*weights.shape[:-1], 1)
        weights = torch.cat([weights, sinks], dim=-1)
    weights = torch.softmax(weights, dim=-1, dtype=torch.float32)[..., :num_keys].to(query.dtype)
    return torch.dropout(weights, scores.dropout, train=True) @ value


AttentionInterface.register(SEGMENTS, segments_attention)
AttentionMaskInterface.register(SEGMENTS, build_segments_mask)
