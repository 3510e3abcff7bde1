import numpy as np

from tunesmith.data.tokenization import EncodedRow, EncodingOptions


def test_options_are_a_key():
    options = EncodingOptions("sft", 8, mask_history=True)
    assert hash(options) == hash(EncodingOptions("sft", 8, mask_history=True))
    assert options != EncodingOptions("sft", 8)


def test_a_row_has_lost_nothing_unless_it_says_so():
    assert EncodedRow(np.zeros(1, np.int32), np.zeros(0, np.int32)).truncation == frozenset()
