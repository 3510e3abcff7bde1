import json
import pickle

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tests.tiny.tokenizers import byte_level_tokenizer, metaspace_tokenizer
from tests.unit.data.tokenization.test_units import NASTY
from tunesmith.data.tokenization import remembered
from tunesmith.data.tokenization.remembered import RememberingTokenizer

TEXTS = ["<|im_start|>user\nWhat is  it?\n<|im_end|>", "What is it? It is 12.", "", "\n", "你好，世界。", "x" * 40, " "]


def plain(tokenizer, texts):
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]


def remembering(tokenizer, texts):
    return [ids.tolist() for ids in tokenizer.encode(texts)]


@pytest.mark.parametrize("tokenizer", [byte_level_tokenizer(), metaspace_tokenizer()], ids=["byte_level", "metaspace"])
def test_ids_are_those_of_the_whole_text_however_often_it_came(tokenizer):
    cached = RememberingTokenizer(tokenizer)
    expected = plain(tokenizer, TEXTS)
    assert remembering(cached, TEXTS) == expected
    assert remembering(cached, TEXTS[::-1]) == expected[::-1]
    assert remembering(pickle.loads(pickle.dumps(cached)), TEXTS) == expected


@pytest.mark.no_cover  # the test above meets the same lines
@pytest.mark.parametrize("name", ["gemma3", "llama2", "llama3", "qwen3"])
def test_real_tokenizers_give_the_same_ids(name, assets):
    tokenizer = AutoTokenizer.from_pretrained(assets / "tokenizers" / name)
    cached = RememberingTokenizer(tokenizer)
    specials = st.sampled_from([" ", *tokenizer.all_special_tokens, *tokenizer.get_added_vocab()])
    rows = json.loads((assets / "data" / "alpaca_en_demo.json").read_text(encoding="utf-8"))[:40]
    texts = [row["instruction"] + "\n" + row["output"] for row in rows]
    assert remembering(cached, texts) == plain(tokenizer, texts)

    @limits(max_examples=100, deadline=None)
    @given(st.lists(NASTY | st.text(max_size=20) | specials, max_size=8).map("".join))
    def check(text):
        assert remembering(cached, [text]) == plain(tokenizer, [text])

    check()


def test_no_more_is_remembered_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(remembered, "MOST_REMEMBERED", 3)
    tokenizer = byte_level_tokenizer()
    cached = RememberingTokenizer(tokenizer)
    cached.encode(["one two " + "long" * 20])
    assert set(cached._known) == {"one", " two"}
    texts = ["three four five", "one two three"]
    assert remembering(cached, texts) == plain(tokenizer, texts)
    assert set(cached._known) == {"one", " two"}


def test_known_units_are_not_encoded_again(monkeypatch):
    cached = RememberingTokenizer(byte_level_tokenizer())
    cached.encode(["one two three"])
    encoded = []
    monkeypatch.setattr(cached, "_encode", lambda units: [encoded.append(unit) or b"" for unit in units])
    cached.encode(["one three four", "one two"])
    assert encoded == [" four"]
