import pickle

import pytest
from hypothesis import example, given
from hypothesis import settings as limits
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers

from tests.tiny.tokenizers import BYTE_LEVEL_SPLIT, byte_level_tokenizer, metaspace_tokenizer
from tunesmith.data.tokenization.units import WholeTexts, WordUnits, build_cutter, split_branches
from tunesmith.models.gguf.pretokenizers import PRE_TOKENIZERS

QWEN3_5 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def splits(*patterns):
    return pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


FAMILIES = {
    **{
        name: PRE_TOKENIZERS[name].build()
        for name in ("gpt-2", "smollm", "llama3", "qwen2", "deepseek-v3", "tekken", "gpt-4o")
    },
    "built in": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    "digits": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "qwen3.5": splits(QWEN3_5),
}
NASTY = st.lists(
    st.sampled_from(
        [*"aB1é你ー'’.,!/<|>_- \n\r\t\v\x1c\x85\xa0\u200b\u2028\u3000\u0301🙂", "  ", "'s", " the", "\n\n", ".\n"]
    ),
    max_size=14,
).map("".join)


def tokenizer_with(pre_tokenizer):
    tokenizer = byte_level_tokenizer()
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


@pytest.mark.parametrize("family", FAMILIES)
def test_units_have_the_words_of_the_whole_text(family):
    pre_tokenizer = FAMILIES[family]
    cutter = build_cutter(tokenizer_with(pre_tokenizer))
    assert isinstance(cutter, WordUnits)

    def words(text):
        return [word for word, _ in pre_tokenizer.pre_tokenize_str(text)]

    @limits(max_examples=120, deadline=None)
    @given(NASTY | st.text(max_size=30))
    @example("a\n/b .\n/c \n\nd\ne  f \n g\t h")
    def check(text):
        units = WordUnits([]).cut(text)
        assert "".join(units) == text
        assert [word for unit in units for word in words(unit)] == words(text)
        assert "".join(cutter.cut(text)) == text

    check()


def test_units_begin_with_their_space():
    text = "Hello there,  big\nworld.\n\nNext\tone \n"
    assert WordUnits([]).cut(text) == ["Hello", " there,", "  big\n", "world.\n\nNext\tone", " \n"]


def test_added_tokens_are_units_the_longest_first():
    cutter = WordUnits(["<|a|>", "<|a|>b", "c d"])
    assert cutter.cut("x<|a|>bc d y<|a|> z") == ["x", "<|a|>b", "c d", " y", "<|a|>", " z"]
    assert cutter.cut("") == []


def test_cutters_travel_to_other_processes():
    cutter = build_cutter(byte_level_tokenizer())
    text = "Hi you<|im_end|>\n"
    assert pickle.loads(pickle.dumps(cutter)).cut(text) == cutter.cut(text) == ["Hi", " you", "<|im_end|>", "\n"]


def test_a_token_that_was_added_later_stays_in_its_word():
    tokenizer = byte_level_tokenizer()
    tokenizer.add_tokens([AddedToken("<x>", normalized=True)])
    assert build_cutter(tokenizer).cut("a<x>b c") == ["a<x>b", " c"]


def prefix_space(tokenizer):
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)


def unknown_expression(tokenizer):
    tokenizer.backend_tokenizer.pre_tokenizer = splits(r"\w+ \w+|\s+")


def spaces_not_split(tokenizer):
    tokenizer.backend_tokenizer.pre_tokenizer = splits(r"\p{N}")


def removed_words(tokenizer):
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(BYTE_LEVEL_SPLIT), "removed")


def no_words(tokenizer):
    tokenizer.backend_tokenizer.pre_tokenizer = None


def small_letters(tokenizer):
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()


def swallowed_space(tokenizer):
    tokenizer.add_tokens([AddedToken("<x>", lstrip=True)])


def whole_words_only(tokenizer):
    tokenizer.add_tokens([AddedToken("xyz", single_word=True)])


def two_words_in_one(tokenizer):
    tokenizer.add_tokens([AddedToken("New York", normalized=True)])


def special_text_is_text(tokenizer):
    tokenizer.split_special_tokens = True


def chance(tokenizer):
    tokenizer.backend_tokenizer.model.dropout = 0.1


@pytest.mark.parametrize(
    "change",
    [
        prefix_space,
        unknown_expression,
        spaces_not_split,
        removed_words,
        no_words,
        small_letters,
        swallowed_space,
        whole_words_only,
        two_words_in_one,
        special_text_is_text,
        chance,
    ],
)
def test_texts_stay_whole_where_words_may_depend_on_what_is_around_them(change):
    tokenizer = byte_level_tokenizer()
    change(tokenizer)
    cutter = build_cutter(tokenizer)
    assert isinstance(cutter, WholeTexts)
    assert cutter.cut("New York, 1") == ["New York, 1"]
    assert cutter.cut("") == []


def test_tokenizers_of_another_kind_get_whole_texts():
    assert isinstance(build_cutter(metaspace_tokenizer()), WholeTexts)


def test_branches_are_what_the_outermost_bars_divide():
    assert split_branches(r"(?i:a|b)|[|)]x|\||[\]|]") == ["(?i:a|b)", "[|)]x", r"\|", r"[\]|]"]
