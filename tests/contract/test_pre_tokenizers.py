"""Every way of cutting text that GGUF files name: it builds, and a text comes back as it was."""

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tunesmith.models.gguf.pretokenizers import PRE_TOKENIZERS

PARTS = [
    "Paris",
    " ",
    "\n",
    "\r\n",
    "\t",
    "12345",
    "'LL",
    "é",
    "你好",
    "🙂",
    "x²",
    "#!",
    "\u00a0",
    "HelloWorld",
    "ع",
    "½",
]


def byte_tokenizer(name):
    """A tokenizer without merges: one token per byte, so that nothing but the cutting can lose text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[name].build()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_a_text_comes_back_as_it_was(name):
    tokenizer = byte_tokenizer(name)

    @limits(max_examples=40, deadline=None)
    @given(st.lists(st.sampled_from(PARTS), max_size=10).map("".join) | st.text(max_size=15))
    def holds(text):
        encoding = tokenizer.encode(text)
        assert len(encoding.ids) == len(text.encode())
        assert tokenizer.decode(encoding.ids) == text

    holds()


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_words_follow_each_other_without_gap_or_overlap(name):
    text = " It's 2024年,\r\n\t naïve—x² 🎉  \n\n Ärger's 1e-10 #$% "
    spans = [span for _, span in PRE_TOKENIZERS[name].build().pre_tokenize_str(text)]
    assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])]
    assert spans[-1][1] == len(text)


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_the_normalizer_is_one_that_exists(name):
    normalizer = PRE_TOKENIZERS[name].build_normalizer()
    composed = "e\u0301" if normalizer is None else normalizer.normalize_str("e\u0301")
    assert composed == ("é" if PRE_TOKENIZERS[name].normalizer == "NFC" else "e\u0301")
    assert PRE_TOKENIZERS[name].normalizer in (None, "NFC")
