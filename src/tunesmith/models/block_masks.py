"""Which tokens of a row see which, in the form that flex attention wants: a rule, and a table of blocks.

A row is read as in `branches`: groups of a prompt and the branches that go on from it; a sample that shares nothing is
a group without branches. A token sees what stands before it in its own part, and all of the prompt that its part goes
on from. The rule says so for two tokens; the table says for two blocks of tokens whether any, or all, of the first see
the second, so that the kernel leaves out what nobody sees and asks the rule only where it has to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from tunesmith.models.branches import BranchLengths

BLOCK = 128
"""Tokens per block of the table; what PyTorch takes by itself."""

TokenRule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Whether a query sees a key, from the numbers of row, head, query and key."""


@dataclass(frozen=True, slots=True)
class Part:
    """Neighbours in a row that belong together: a prompt, a branch, or a sample."""

    start: int
    end: int
    first_position: int
    """Place of its first token in its sequence."""

    prompt: int
    """Number of the part that it goes on from; its own where it goes on from none."""


def build_block_mask(
    rows: Sequence[BranchLengths],
    *,
    window: int | None = None,
    device: torch.device | str = "cpu",
    block: int = BLOCK,
) -> BlockMask:
    """Build the mask of a batch.

    Args:
        rows: The groups of each row; all rows have the same number of tokens.
        window: Tokens of a sequence that a token sees, itself included; all by default.
        device: Of the mask.
        block: Tokens per block.

    Returns:
        A mask for the rows with so many tokens behind them that blocks come out even. These see each other alone.
    """
    num_tokens = sum(map(sum, rows[0]))
    num_blocks = -(-num_tokens // block)
    filler = num_blocks * block - num_tokens
    parts = [list_parts([*groups, (filler,)]) for groups in rows]
    tables = [block_tables(each, num_blocks, window=window, block=block) for each in parts]
    some, whole = (np.stack(kind) for kind in zip(*tables, strict=True))
    asked_counts, asked = _in_order(some & ~whole)
    whole_counts, wholes = _in_order(whole)
    mask = BlockMask.from_kv_blocks(
        asked_counts,
        asked,
        whole_counts,
        wholes,
        BLOCK_SIZE=block,
        mask_mod=build_token_rule(parts, window=window, device=device),
    )
    return mask.to(device)


def list_parts(groups: BranchLengths) -> list[Part]:
    """Return the parts of a row, in order. Empty ones keep their place."""
    parts: list[Part] = []
    start = 0
    for prompt, *branches in groups:
        number = len(parts)
        parts.append(Part(start, start + prompt, 0, number))
        start += prompt
        for length in branches:
            parts.append(Part(start, start + length, prompt, number))
            start += length
    return parts


def build_token_rule(
    rows: Sequence[Sequence[Part]], *, window: int | None = None, device: torch.device | str = "cpu"
) -> TokenRule:
    """Build the rule for single tokens.

    Args:
        rows: The parts of each row.
        window: Tokens of a sequence that a token sees, itself included; all by default.
        device: Where the rule is asked.
    """
    own, prompt, position = (
        torch.from_numpy(np.stack(values)).to(device) for values in zip(*map(_describe_tokens, rows), strict=True)
    )
    # A tensor, and always there: the kernel is compiled once for layers with and without a window.
    reach = torch.tensor(own.shape[1] if window is None else window, dtype=torch.int32, device=device)

    def sees(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        part = own[row, key]
        is_known = (own[row, query] == part) | (prompt[row, query] == part)
        return is_known & (query >= key) & (position[row, query] - position[row, key] < reach)

    return sees


def block_tables(
    parts: Sequence[Part], num_blocks: int, *, window: int | None = None, block: int = BLOCK
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return of which blocks some tokens are seen, and which are seen as a whole.

    A block of queries from two parts never counts as seeing another as a whole; the rule answers for it.

    Args:
        parts: Of the row.
        num_blocks: In the row.
        window: Tokens of a sequence that a token sees, itself included; all by default.
        block: Tokens per block.

    Returns:
        Two tables of shape [blocks of queries, blocks of keys].
    """
    some, whole = np.zeros((2, num_blocks, num_blocks), dtype=np.bool_)
    stretches = [_Stretch.of(part, block) for part in parts]
    for number, part in enumerate(parts):
        for other in {number, part.prompt}:
            if part.end > part.start and parts[other].end > parts[other].start:
                _mark(some, whole, stretches[number], stretches[other], is_own=other == number, window=window)
    return some, whole


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The blocks that a part touches."""

    blocks: slice
    lowest: NDArray[np.int64]
    """Of the positions that the part has in each of these blocks."""

    highest: NDArray[np.int64]
    is_filled: NDArray[np.bool_]
    """Whether the part fills the block."""

    @classmethod
    def of(cls, part: Part, block: int) -> "_Stretch":
        first, last = part.start // block, max(part.start, part.end - 1) // block
        borders = np.arange(first, last + 2) * block
        starts, ends = np.maximum(borders[:-1], part.start), np.minimum(borders[1:], part.end)
        shift = part.first_position - part.start
        return cls(slice(first, last + 1), starts + shift, ends - 1 + shift, ends - starts == block)


def _mark(
    some: NDArray[np.bool_],
    whole: NDArray[np.bool_],
    queries: _Stretch,
    keys: _Stretch,
    *,
    is_own: bool,
    window: int | None,
) -> None:
    """Enter into both tables what one part sees of another, or of itself."""
    seen = np.ones((len(queries.lowest), len(keys.lowest)), dtype=np.bool_)
    filled = queries.is_filled[:, None] & keys.is_filled[None, :]
    if is_own:
        seen, filled = np.tril(seen), np.tril(filled, -1)
    if window is not None:
        seen &= queries.lowest[:, None] - keys.highest[None, :] < window
        filled &= queries.highest[:, None] - keys.lowest[None, :] < window
    some[queries.blocks, keys.blocks] |= seen
    whole[queries.blocks, keys.blocks] |= filled


def _describe_tokens(parts: Sequence[Part]) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Return of each token the number of its part, that of the part's prompt, and its position. Shape [tokens] each."""
    lengths = [part.end - part.start for part in parts]
    own = np.repeat(np.arange(len(parts), dtype=np.int32), lengths)
    prompt = np.array([part.prompt for part in parts], dtype=np.int32)[own]
    shift = np.array([part.first_position - part.start for part in parts], dtype=np.int32)[own]
    return own, prompt, np.arange(len(own), dtype=np.int32) + shift


def _in_order(tables: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
    """Return how many blocks are marked in each line, and the numbers of all blocks, the marked ones first.

    Args:
        tables: Shape [rows, blocks, blocks].

    Returns:
        Shapes [rows, 1, blocks] and [rows, 1, blocks, blocks], int32; all heads share them.
    """
    counts = tables.sum(axis=-1, dtype=np.int32)
    numbers = np.argsort(~tables, axis=-1, kind="stable").astype(np.int32)
    return torch.from_numpy(counts)[:, None], torch.from_numpy(numbers)[:, None]
