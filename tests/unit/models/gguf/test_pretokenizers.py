"""Rules of cutting text, against splits worked out by hand."""

import pytest

from tunesmith.errors import ModelError
from tunesmith.models.gguf.pretokenizers import PRE_TOKENIZERS, resolve_pre_tokenizer


def words(name: str, text: str) -> list[str]:
    return [text[slice(*span)] for _, span in resolve_pre_tokenizer(name, "file").build().pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("gpt-2", "a\n\n1. x  10", ["a", "\n", "\n", "1", ".", " x", " ", " 10"]),
        ("smollm", "a\n\n1. x  10", ["a", "\n\n", "1", ".", " x", "  ", "1", "0"]),
        ("llama-bpe", "I'LL pay 12345\n\nnow", ["I", "'LL", " pay", " ", "123", "45", "\n\n", "now"]),
        ("qwen2", "I'LL pay 123!\n", ["I", "'LL", " pay", " ", "1", "2", "3", "!\n"]),
        ("deepseek-v3", "abc 1234你好x", ["abc", " ", "123", "4", "你好", "x"]),
        ("tekken", "HelloWorld 12", ["Hello", "World", " ", "1", "2"]),
        ("gpt-4o", "HelloWorld's 1234", ["Hello", "World's", " ", "123", "4"]),
    ],
)
def test_text_is_cut_as_the_family_does(name, text, expected):
    assert words(name, text) == expected


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_no_character_is_lost(name):
    text = " It's 2024年,\r\n\t naïve—x² 🎉  \n\n Ärger's 1e-10 #$% "
    assert "".join(words(name, text)) == text


def test_unknown_name_is_refused():
    with pytest.raises(ModelError, match=r"toy\.gguf: the GGUF file cuts text with 'nope'"):
        resolve_pre_tokenizer("nope", "toy.gguf")
