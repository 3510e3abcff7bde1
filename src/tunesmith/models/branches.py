"""Samples that share their beginning: a row holds each prompt once, with all the branches that go on from it.

A pair of completions stands in its row as `[prompt | chosen | rejected]`, with positions that go on after the prompt
for each of them. Everything that works on one token at a time (projections, MLP, norms, the head) is done once for a
prompt. Only attention needs whole sequences: there each branch is put behind its prompt again, which makes the same
products as rows that hold the prompt twice, with the same fused kernel and without a mask. What attention computes
again are a prompt's own scores, a small part of a layer's work; masks that spare them cost more than that on a CPU.

Example:
    The group `(2, 3, 1)`, that is a prompt of two tokens and branches of three and one::

        row           P0  P1  A0  A1  A2  B0
        positions      0   1   2   3   4   2
        sequences     P0  P1  A0  A1  A2      and  P0  P1  B0
"""

from collections.abc import Sequence

import torch
from torch import Tensor

BranchLengths = Sequence[Sequence[int]]
"""Per group the tokens of its prompt and of each of its branches: `((prompt, branch, branch ...), ...)`."""


def check_branches(groups: BranchLengths, query: Tensor, *, is_causal: bool) -> None:
    """Compare what a batch says of its branches with the batch.

    Args:
        groups: Of the row.
        query: Shape [batch, heads, tokens, width].
        is_causal: Whether the mask of the layer is that of a whole causal row.

    Raises:
        ValueError: There is a padding mask, a cache or a second row, or the lengths do not add up.
    """
    num_rows, num_tokens = query.shape[0], query.shape[2]
    described = sum(sum(group) for group in groups)
    if not is_causal or num_rows != 1 or described != num_tokens:
        raise ValueError(
            f"branch_lengths describes {described} tokens of one causal row without cache; the batch has {num_rows} "
            f"rows of {num_tokens} tokens{'' if is_causal else ' and a mask of its own'}"
        )


def split_sequences(row: Tensor, groups: BranchLengths) -> list[Tensor]:
    """Cut a row into whole sequences, group by group: each branch behind its prompt.

    Args:
        row: Shape [1, heads, tokens, width].
        groups: Of the row.

    Returns:
        One tensor per branch. Shape [1, heads, prompt + branch, width].
    """
    # One split of the row, not one slice per part: the gradient of a split is one concatenation.
    parts = iter(torch.split(row, [length for group in groups for length in group], dim=2))
    sequences: list[Tensor] = []
    for group in groups:
        prompt = next(parts)
        sequences.extend(torch.cat([prompt, next(parts)], dim=2) for _ in group[1:])
    return sequences


def join_sequences(sequences: Sequence[Tensor], groups: BranchLengths) -> Tensor:
    """Put together what was computed for whole sequences; the prompt's part is taken from its first branch.

    Args:
        sequences: One tensor per branch, in order. Shape [1, prompt + branch, heads, width].
        groups: Of the row.

    Returns:
        Shape [1, tokens, heads, width].
    """
    remaining = iter(sequences)
    parts = []
    for prompt, *branches in groups:
        parts.append(next(remaining))
        parts.extend(next(remaining)[:, prompt:] for _ in branches[1:])
    return torch.cat(parts, dim=1)
