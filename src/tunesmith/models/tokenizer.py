"""The tokenizer of a run, from wherever the model is."""

import logging
from collections.abc import Mapping
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tunesmith.config.model import ModelConfig
from tunesmith.errors import ModelError
from tunesmith.models.gguf.metadata import read_metadata
from tunesmith.models.gguf.tokenizer import build_tokenizer
from tunesmith.models.locations import ModelLocation, hub_error, resolve_base_of_adapter, resolve_location
from tunesmith.models.vocabulary.tokens import add_new_tokens

logger = logging.getLogger(__name__)

# Tokens that models bring along for padding or never write themselves, best first.
_PADDING_NAMES = ("<|finetune_right_pad_id|>", "<pad>", "[PAD]", "<|pad|>", "<|endoftext|>", "<unk>", "[UNK]")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "tekken.json")


def load_tokenizer(config: ModelConfig) -> PreTrainedTokenizerBase:
    """Load the tokenizer of `model_name_or_path`, padding on the right, with a padding token and the new tokens.

    Raises:
        ModelError: There is none, or it cannot be loaded.
    """
    location = resolve_location(config)
    tokenizer = _load(config, location)
    tokenizer.padding_side = "right"
    _set_padding(tokenizer)
    add_new_tokens(tokenizer, config)
    return tokenizer


def load_own_vocabulary(config: ModelConfig, location: ModelLocation) -> Mapping[str, int]:
    """Return the ids of a model's tokens before anything is added to them."""
    vocabulary: Mapping[str, int] = _load(config, location).get_vocab()
    return vocabulary


def _load(config: ModelConfig, location: ModelLocation) -> PreTrainedTokenizerBase:
    if location.kind == "gguf":
        assert location.path is not None, "a GGUF file is on this disk"
        return build_tokenizer(read_metadata(location.path), split_special_tokens=config.split_special_tokens)
    if location.kind == "adapter" and not _has_tokenizer(location):
        return _load(config, resolve_base_of_adapter(config, location))
    return _load_with_transformers(config, location)


def _has_tokenizer(location: ModelLocation) -> bool:
    return location.path is not None and any((location.path / name).is_file() for name in _TOKENIZER_FILES)


def _load_with_transformers(config: ModelConfig, location: ModelLocation) -> PreTrainedTokenizerBase:
    options: dict[str, Any] = {"split_special_tokens": config.split_special_tokens}
    if not config.use_fast_tokenizer:
        options["use_fast"] = False
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            location.source,
            trust_remote_code=config.trust_remote_code,
            revision=config.model_revision,
            cache_dir=config.cache_dir,
            token=config.hf_hub_token,
            **options,
        )
    except (OSError, ValueError, KeyError) as error:
        if location.kind == "hub":
            raise hub_error(location.name, config, error) from error
        raise ModelError(
            f"model_name_or_path: no tokenizer can be loaded from {location.name}: {error}. The folder needs "
            f"one of {', '.join(_TOKENIZER_FILES[:2])} beside config.json."
        ) from error
    if not config.use_fast_tokenizer and tokenizer.is_fast:
        raise ModelError(
            f"use_fast_tokenizer: false, but transformers has only the fast tokenizer for {location.name}. "
            "Remove the setting."
        )
    return tokenizer


def _set_padding(tokenizer: PreTrainedTokenizerBase) -> None:
    """Give the tokenizer a padding token if it has none; nothing is added to the vocabulary, and eos stays as it is.

    Padding is masked by position everywhere, so a padding token that means something else loses nothing.
    """
    if tokenizer.pad_token_id is not None:
        return
    vocabulary = tokenizer.get_vocab()
    candidates = [name for name in _PADDING_NAMES if name in vocabulary and name != tokenizer.eos_token]
    chosen = candidates[0] if candidates else tokenizer.eos_token
    if chosen is None:
        raise ModelError(
            f"model_name_or_path: the tokenizer of {tokenizer.name_or_path} has neither a padding nor an end token, so "
            "answers could not be ended. Set eos_token in its tokenizer_config.json."
        )
    tokenizer.pad_token = chosen
    logger.info("the tokenizer has no padding token; %r is used", chosen)
