"""Block masks say token by token what a slow loop says, and block by block no less."""

import numpy as np
import pytest
import torch

from tunesmith.models.block_masks import block_tables, build_block_mask, build_token_rule, list_parts

GROUPS = ((5, 3, 4), (1, 30, 2), (20, 1, 1, 6), (9,), (16, 16, 16))
BLOCK = 8


def slow_mask(groups, window=None):
    """Which token sees which, found by following each token back: through its branch, then through its prompt."""
    tokens = []  # group, branch (None for the prompt), position
    for group, (prompt, *branches) in enumerate(groups):
        tokens += [(group, None, place) for place in range(prompt)]
        tokens += [(group, number, prompt + place) for number, n in enumerate(branches) for place in range(n)]
    seen = np.zeros((len(tokens), len(tokens)), dtype=bool)
    for query, (group, branch, position) in enumerate(tokens):
        for key, (other, other_branch, place) in enumerate(tokens):
            is_ahead = other == group and other_branch in {branch, None} and place <= position
            seen[query, key] = is_ahead and (window is None or position - place < window)
    return seen


def dense(groups, window=None):
    parts = list_parts(groups)
    rule = build_token_rule([parts], window=window)
    places = torch.arange(sum(map(sum, groups)))
    zero = torch.zeros((), dtype=torch.long)
    return rule(zero, zero, places[:, None], places[None, :]).numpy()


@pytest.mark.parametrize("window", [None, 1, 4, 16])
@pytest.mark.parametrize("groups", [GROUPS, ((7,), (12,), (1,)), ((3, 2, 2),), ((0, 5, 3), (4, 0, 2))])
def test_a_token_sees_its_own_part_and_its_prompt(groups, window):
    np.testing.assert_array_equal(dense(groups, window), slow_mask(groups, window))


@pytest.mark.parametrize("window", [None, 1, 4, 16])
@pytest.mark.parametrize("groups", [GROUPS, ((7,), (12,), (1,), (44,)), ((32, 40, 8),)])
def test_blocks_are_left_out_exactly_where_nothing_is_seen(groups, window):
    filler = -sum(map(sum, groups)) % BLOCK
    padded = [*groups, (filler,)]
    num_blocks = sum(map(sum, padded)) // BLOCK
    some, whole = block_tables(list_parts(padded), num_blocks, window=window, block=BLOCK)
    blocks = slow_mask(padded, window).reshape(num_blocks, BLOCK, num_blocks, BLOCK)
    np.testing.assert_array_equal(some, blocks.any(axis=(1, 3)))
    assert not (whole & ~blocks.all(axis=(1, 3))).any()
    assert whole.any() == blocks.all(axis=(1, 3)).any()


def test_the_mask_of_several_rows_holds_the_tables_of_each():
    rows = [GROUPS, ((sum(map(sum, GROUPS)),),)]
    mask = build_block_mask(rows, block=BLOCK)
    num_tokens = sum(map(sum, GROUPS))
    filler = -num_tokens % BLOCK
    assert mask.shape == (2, 1, num_tokens + filler, num_tokens + filler)
    for row, groups in enumerate(rows):
        expected = slow_mask([*groups, (filler,)]).reshape(-1, BLOCK, (num_tokens + filler) // BLOCK, BLOCK)
        np.testing.assert_array_equal(mask.to_dense()[row, 0].numpy().astype(bool), expected.any(axis=(1, 3)))
    assert mask.full_kv_num_blocks.sum() > 0
    assert (mask.kv_num_blocks + mask.full_kv_num_blocks).max() <= mask.kv_indices.shape[-1]


def test_the_transposed_tables_for_the_backward_pass_hold_the_same_blocks():
    mask = build_block_mask([GROUPS], block=BLOCK)
    assert mask.q_num_blocks.sum() == mask.kv_num_blocks.sum()
    assert mask.full_q_num_blocks.sum() == mask.full_kv_num_blocks.sum()


def test_shared_prompts_leave_out_most_of_the_square():
    """Two pairs of 512 tokens of prompt and 256 of each completion: of 16 x 16 blocks a quarter is looked at."""
    mask = build_block_mask([((512, 256, 256), (512, 256, 256))])
    looked_at = int(mask.kv_num_blocks.sum() + mask.full_kv_num_blocks.sum())
    assert looked_at == 2 * (10 + 2 * (8 + 3))  # prompt: 4 + 3 + 2 + 1; branch: 2 x 4 of the prompt, 2 + 1 of its own
    assert int(mask.full_kv_num_blocks.sum()) == 2 * (6 + 2 * (8 + 1))
