"""The tokenizer of a GGUF file equals the one the vocabulary came from, and what the file says wins."""

import pytest
from transformers import AutoTokenizer

from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.errors import ModelError
from tunesmith.models.gguf.metadata import read_metadata
from tunesmith.models.gguf.tokenizer import build_tokenizer, end_token_ids

TEXTS = [
    "a\n\n1. x  10",
    " lead",
    "It's 12 + 7!",
    "你好，世界 🎉",
    "<|im_start|>user\nhi<|im_end|>\n",
    "",
    "tab\t\t\n\n end  ",
]


def test_ids_equal_the_tokenizer_that_the_vocabulary_came_from(write_gguf):
    path, _ = write_gguf(pre="qwen2")  # the toy cuts text as Qwen2 does
    tokenizer, original = build_tokenizer(read_metadata(path)), byte_level_tokenizer()
    for text in TEXTS:
        assert tokenizer(text)["input_ids"] == original(text)["input_ids"], text
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_names_flags_and_lengths_come_from_the_file(write_gguf):
    tokenizer = build_tokenizer(read_metadata(write_gguf(bos=1, eos=2, unknown=0, padding=0)[0]))
    named = (tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token, tokenizer.pad_token)
    assert named == ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|endoftext|>")
    assert tokenizer.model_max_length == 128
    assert tokenizer.padding_side == "right"
    assert not tokenizer.clean_up_tokenization_spaces
    assert tokenizer.chat_template.startswith("{% for message")
    assert sorted(tokenizer.all_special_ids) == [0, 1, 2]
    marked = {token.content: token.special for token in tokenizer.added_tokens_decoder.values()}
    assert [token for token, special in marked.items() if special] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert list(marked.values()).count(False) == 1  # the user-defined one
    assert tokenizer.decode([1, 72, 2], skip_special_tokens=True) == tokenizer.decode([72])


def test_saved_and_loaded_again_it_is_the_same(write_gguf, tmp_path):
    tokenizer = build_tokenizer(read_metadata(write_gguf()[0]))
    tokenizer.save_pretrained(tmp_path / "saved")
    again = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    assert (again.eos_token, again.pad_token, again.model_max_length) == ("<|im_end|>", "<|im_end|>", 128)
    assert again.all_special_ids == tokenizer.all_special_ids


def test_beginning_token_is_added_where_file_or_rules_say_so(write_gguf):
    hi = build_tokenizer(read_metadata(write_gguf(pre="smollm")[0]))("hi")["input_ids"]
    assert hi[0] != 1
    tokenizer = build_tokenizer(read_metadata(write_gguf(pre="llama-bpe")[0]))
    assert tokenizer("hi")["input_ids"] == [1, *hi]
    assert tokenizer("hi", add_special_tokens=False)["input_ids"] == hi


def test_split_special_tokens_reads_markers_as_text(write_gguf):
    metadata = read_metadata(write_gguf()[0])
    assert 2 in build_tokenizer(metadata)("<|im_end|>")["input_ids"]
    assert 2 not in build_tokenizer(metadata, split_special_tokens=True)("<|im_end|>")["input_ids"]


def test_every_end_marker_of_the_file_is_found(write_gguf):
    assert end_token_ids(read_metadata(write_gguf(eos=2, eot=0)[0])) == [2, 0]


def test_unknown_way_of_cutting_text_is_refused_with_the_known_ones(write_gguf):
    metadata = read_metadata(write_gguf(pre="mystery")[0])
    with pytest.raises(ModelError, match=r"'mystery' \(tokenizer.ggml.pre\).*Known are: .*smollm.*original"):
        build_tokenizer(metadata)


def test_unknown_kind_of_vocabulary_is_refused(write_gguf):
    with pytest.raises(ModelError, match="vocabulary of kind 'rwkv'"):
        build_tokenizer(read_metadata(write_gguf(kind="rwkv")[0]))


def test_missing_key_is_named(write_gguf):
    metadata = read_metadata(write_gguf(drop="tokenizer.ggml.merges")[0])
    with pytest.raises(ModelError, match=r"no tokenizer\.ggml\.merges"):
        build_tokenizer(metadata)


def test_damaged_file_is_refused(tmp_path):
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"not a gguf file at all, whatever its name")
    with pytest.raises(ModelError, match="not a readable GGUF file"):
        read_metadata(path)
