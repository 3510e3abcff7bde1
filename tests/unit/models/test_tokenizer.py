"""Tokenizers from every kind of place, and their padding token."""

import pytest

from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.config import ModelConfig
from tunesmith.errors import ModelError
from tunesmith.models import load_tokenizer


def settings(path, **more) -> ModelConfig:
    return ModelConfig(model_name_or_path=str(path), **more)


def test_folder(model_folder):
    tokenizer = load_tokenizer(settings(model_folder))
    assert (tokenizer.padding_side, tokenizer.pad_token_id, tokenizer.eos_token_id) == ("right", 0, 2)


def test_gguf(write_gguf):
    tokenizer = load_tokenizer(settings(write_gguf()[0].parent))
    assert (tokenizer.padding_side, tokenizer.pad_token_id, tokenizer.eos_token_id) == ("right", 2, 2)


@pytest.mark.parametrize(("eos", "expected"), [("<|im_end|>", "<|endoftext|>"), ("<|endoftext|>", "<|endoftext|>")])
def test_missing_padding_is_taken_from_the_vocabulary_and_eos_stays(tmp_path, eos, expected):
    tokenizer = byte_level_tokenizer()
    tokenizer.pad_token, tokenizer.eos_token = None, eos
    tokenizer.save_pretrained(tmp_path / "bare")
    (tmp_path / "bare" / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    loaded = load_tokenizer(settings(tmp_path / "bare"))
    assert (loaded.pad_token, loaded.eos_token) == (expected, eos)
    assert len(loaded) == len(tokenizer)


def test_adapter_folder_with_a_tokenizer_uses_it_and_without_one_the_base(model_folder, tmp_path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(f'{{"base_model_name_or_path": "{model_folder}"}}', encoding="utf-8")
    assert load_tokenizer(settings(folder)).chat_template == "{{ messages }}"
    byte_level_tokenizer(chat_template="own").save_pretrained(folder)
    assert load_tokenizer(settings(folder)).chat_template == "own"


def test_adapter_folder_without_tokenizer_and_base_is_refused(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match="does not say what its base model is"):
        load_tokenizer(settings(tmp_path))


def test_split_special_tokens_reaches_the_tokenizer(model_folder):
    assert 2 in load_tokenizer(settings(model_folder))("<|im_end|>")["input_ids"]
    assert 2 not in load_tokenizer(settings(model_folder, split_special_tokens=True))("<|im_end|>")["input_ids"]


def test_slow_tokenizer_that_does_not_exist_is_refused(model_folder):
    with pytest.raises(ModelError, match="use_fast_tokenizer: false, but transformers has only the fast"):
        load_tokenizer(settings(model_folder, use_fast_tokenizer=False))


def test_folder_without_tokenizer_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    with pytest.raises(ModelError, match="no tokenizer can be loaded from"):
        load_tokenizer(settings(tmp_path))
