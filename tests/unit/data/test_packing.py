import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunesmith.data.packing import Packs, Piece, best_fit_decreasing, concatenate_and_cut


@given(lengths=st.lists(st.integers(1, 64), max_size=200))
@settings(deadline=None, max_examples=200)
def test_every_row_is_in_exactly_one_pack_and_no_pack_is_over_capacity(lengths):
    packs = best_fit_decreasing(lengths, 64)
    assert Counter(row for pack in packs for row in pack) == Counter(range(len(lengths)))
    assert all(1 <= sum(lengths[row] for row in pack) <= 64 for pack in packs)


def slow_best_fit(lengths, capacity):
    """The textbook loop: look at every open pack for every row."""
    rooms, packs = [], []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        fitting = [(room, pack) for pack, room in enumerate(rooms) if room >= lengths[row]]
        if fitting:
            _, pack = min(fitting)
        else:
            pack = len(rooms)
            rooms.append(capacity)
            packs.append([])
        rooms[pack] -= lengths[row]
        packs[pack].append(row)
    return packs


@given(lengths=st.lists(st.integers(1, 30), max_size=80))
@settings(deadline=None)
def test_fills_as_the_textbook_loop_does(lengths):
    def fills(packs):
        return sorted(sum(lengths[row] for row in pack) for pack in packs)

    assert fills(best_fit_decreasing(lengths, 30)) == fills(slow_best_fit(lengths, 30))


def test_packs_follow_the_order_of_their_rows():
    rng = np.random.default_rng(0)
    packs = best_fit_decreasing(rng.integers(1, 65, 200), 64)
    assert [pack[0] for pack in packs] == sorted(min(pack) for pack in packs)
    assert all(pack == sorted(pack) for pack in packs)


def test_each_row_goes_where_it_leaves_the_least_room():
    # 6 | 5 -> packs with room 4 and 5; 4 closes the first, 3 and 2 fill the second
    assert best_fit_decreasing([3, 6, 2, 5, 4], 10) == [[0, 2, 3], [1, 4]]


def test_hardly_any_room_is_left_on_a_realistic_length_profile():
    lengths = np.clip(np.random.default_rng(3).lognormal(5.2, 0.8, 20_000), 8, 2048).astype(int)
    packs = best_fit_decreasing(lengths, 2048)
    assert lengths.sum() / (len(packs) * 2048) > 0.99


def test_a_quarter_of_a_million_rows_take_about_a_second():
    lengths = np.random.default_rng(0).integers(1, 8192, 250_000)
    begin = time.process_time()
    best_fit_decreasing(lengths, 8192)
    assert time.process_time() - begin < 5


@pytest.mark.parametrize("length", [0, 11])
def test_a_row_that_cannot_be_packed_whole_is_named(length):
    with pytest.raises(ValueError, match=rf"row 1 has {length} tokens; rows of 1 to 10 tokens"):
        best_fit_decreasing([5, length], 10)


def test_no_rows_make_no_packs():
    assert best_fit_decreasing([], 10) == []
    assert list(concatenate_and_cut([], 10)) == []
    assert concatenate_and_cut([], 10).tokens.tolist() == []


def test_blocks_are_cut_across_rows_and_the_remainder_is_kept():
    blocks = concatenate_and_cut([5, 0, 4], 4)
    assert list(blocks) == [[Piece(0, 0, 4)], [Piece(0, 4, 5), Piece(2, 0, 3)], [Piece(2, 3, 4)]]
    assert blocks.tokens.tolist() == [4, 4, 1]


@given(lengths=st.lists(st.integers(0, 40), max_size=40), block=st.integers(1, 17))
@settings(deadline=None)
def test_concatenating_and_cutting_keeps_every_token_in_order(lengths, block):
    blocks = concatenate_and_cut(lengths, block)
    tokens = [(piece.row, at) for pieces in blocks for piece in pieces for at in range(piece.start, piece.end)]
    assert tokens == [(row, at) for row, length in enumerate(lengths) for at in range(length)]
    assert all(tokens == block for tokens in blocks.tokens[:-1])
    assert all(piece.start < piece.end for pieces in blocks for piece in pieces)


def test_packs_of_whole_rows_know_their_tokens_and_count_from_the_end():
    packs = Packs.of_whole_rows([[2, 0], [1]], [3, 7, 4])
    assert packs[-1] == [Piece(1, 0, 7)]
    assert packs.tokens.tolist() == [7, 7]
    with pytest.raises(IndexError, match="pack 2 of 2"):
        packs[2]
