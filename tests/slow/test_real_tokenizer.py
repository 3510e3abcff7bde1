"""The tokenizer of a real GGUF file, against the file's own vocabulary and a statement of its rules made here."""

from itertools import pairwise

import gguf
import pytest
import regex
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tunesmith.models.gguf.metadata import read_metadata
from tunesmith.models.gguf.tokenizer import build_tokenizer

pytestmark = pytest.mark.slow

# The rule set that llama.cpp calls "smollm": digits apart, then the words of GPT-2.
DIGIT = regex.compile(r"\p{N}")
WORD = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")

TEXTS = [
    "The capital of France is Paris.",
    "a\n\n1. x  10",
    " lead and trail ",
    "It's 2024, we've paid $1,234.50!",
    "你好，世界 🎉 naïve Ärger x² ½",
    "def add(a, b):\n\treturn a + b\r\n\r\n",
    "",
]
PARTS = ["Paris", " ", "\n", "  ", "12", "345", "'s", "é", "你好", "🙂", "\t", "x²", "...", "\u00a0", "ing"]


class SlowTokenizer:
    """Byte-pair encoding word for word as it is defined, from the fields of the file."""

    def __init__(self, path):
        fields = gguf.GGUFReader(path).fields
        assert fields["tokenizer.ggml.pre"].contents() == "smollm"
        self.tokens = fields["tokenizer.ggml.tokens"].contents()
        self.ids = {token: index for index, token in enumerate(self.tokens)}
        self.ranks = {tuple(pair.split(" ")): n for n, pair in enumerate(fields["tokenizer.ggml.merges"].contents())}
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(256) if byte not in printable]
        self.letters = {byte: chr(byte) for byte in printable} | {b: chr(256 + n) for n, b in enumerate(others)}

    def encode(self, text):
        pieces, start = [], 0
        for match in DIGIT.finditer(text):
            pieces += [text[start : match.start()], match[0]]
            start = match.end()
        words = [word for piece in [*pieces, text[start:]] for word in WORD.findall(piece)]
        # The vocabulary lacks some bytes that begin characters of unassigned planes only; llama.cpp skips them too.
        return [self.ids[part] for word in words for part in self.merge(word) if part in self.ids]

    def merge(self, word):
        parts = [self.letters[byte] for byte in word.encode()]
        while len(parts) > 1:
            rank, place = min((self.ranks.get(pair, 10**9), n) for n, pair in enumerate(pairwise(parts)))
            if rank == 10**9:
                break
            parts[place : place + 2] = ["".join(parts[place : place + 2])]
        return parts


@pytest.fixture(scope="module")
def slow(smollm2_file):
    return SlowTokenizer(smollm2_file)


@pytest.fixture(scope="module")
def tokenizer(smollm2_file):
    return build_tokenizer(read_metadata(smollm2_file))


def test_every_id_is_that_of_the_file(tokenizer, slow):
    assert tokenizer.convert_ids_to_tokens(list(range(len(slow.tokens)))) == slow.tokens
    assert len(tokenizer) == len(slow.tokens)


@pytest.mark.parametrize("text", TEXTS)
def test_ids_follow_from_vocabulary_and_rules_of_the_file(tokenizer, slow, text):
    assert tokenizer(text)["input_ids"] == slow.encode(text)


def test_ids_of_any_text_follow_from_vocabulary_and_rules_of_the_file(tokenizer, slow):
    @limits(max_examples=200, deadline=None)
    @given(st.lists(st.sampled_from(PARTS), max_size=12).map("".join) | st.text(max_size=20))
    def holds(text):
        assert tokenizer(text)["input_ids"] == slow.encode(text)

    holds()


def test_numbers_are_single_digits_and_line_breaks_stay_together(tokenizer):
    assert tokenizer("a\n\n1. x  10").tokens() == ["a", "ĊĊ", "1", ".", "Ġx", "ĠĠ", "1", "0"]
    assert tokenizer("2024").tokens() == ["2", "0", "2", "4"]


@pytest.mark.parametrize("text", TEXTS)
def test_decoding_adds_and_drops_nothing(tokenizer, text):
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_an_answer_ends_with_the_marker_of_its_template(tokenizer):
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("<|im_end|>", 2)
    assert (tokenizer.bos_token_id, tokenizer.pad_token_id) == (1, 2)
    assert tokenizer("Hi<|im_end|>")["input_ids"][-1] == 2
    assert tokenizer.decode([2, 1, 0], skip_special_tokens=True) == ""


def test_no_token_is_put_around_a_text(tokenizer):
    assert tokenizer("Hi")["input_ids"] == tokenizer("Hi", add_special_tokens=False)["input_ids"]


def test_the_context_is_as_long_as_the_file_says(tokenizer):
    assert tokenizer.model_max_length == 8192
