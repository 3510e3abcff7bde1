import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny.tokenizers import byte_level_tokenizer
from tests.unit.data.stored import stored_rows
from tunesmith.data.inspection.contents import count_stripped_tokens, find_duplicates, row_digests

ROWS = st.lists(
    st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=3), st.integers(0, 1)), min_size=1, max_size=12
)


@settings(deadline=None, max_examples=50)
@given(ROWS)
def test_rows_have_the_same_digest_exactly_when_ids_and_spans_are_the_same(tmp_path_factory, rows):
    encoded = [(number, ids, [(start, len(ids))]) for number, (ids, start) in enumerate(rows)]
    path = tmp_path_factory.mktemp("rows") / "rows.arrow"
    digests = row_digests(stored_rows(path, [encoded[:5], encoded[5:]] if len(encoded) > 5 else [encoded]))
    for first in range(len(rows)):
        for second in range(len(rows)):
            same = (rows[first][0], rows[first][1]) == (rows[second][0], rows[second][1])
            assert (digests[first] == digests[second]) == same


def test_duplicates_are_counted_beyond_the_first_and_shown_in_order():
    found = find_duplicates(np.array([7, 5, 7, 9, 5, 7, 1, 1], dtype=np.uint64), num_shown=2)
    assert found.count == 4
    assert found.shown == ((0, 2, 5), (1, 4))


def test_a_set_without_repeats_has_no_duplicates():
    assert find_duplicates(np.array([3, 1, 2], dtype=np.uint64)).count == 0
    assert find_duplicates(np.zeros(0, dtype=np.uint64)).shown == ()


def test_special_tokens_in_answers_are_counted_once_per_row_and_end_markers_are_none(tmp_path):
    tokenizer = byte_level_tokenizer(extra_specials=("<tool>",))
    tool, end, start = (tokenizer.convert_tokens_to_ids(name) for name in ("<tool>", "<|im_end|>", "<|im_start|>"))
    rows = stored_rows(
        tmp_path / "rows.arrow",
        [
            [(0, [start, 50, tool, tool, end], [(1, 5)])],  # twice in one answer
            [(1, [tool, 50, 51, end], [(2, 4)]), (2, [50, tool, 51, start, end], [(0, 2), (3, 5)])],  # in a prompt
        ],
    )
    assert count_stripped_tokens(rows, tokenizer, ["<|im_end|>"]) == {"<tool>": 2, "<|im_start|>": 1}
    assert count_stripped_tokens(rows, tokenizer, ["<|im_end|>", "<tool>"]) == {"<|im_start|>": 1}
