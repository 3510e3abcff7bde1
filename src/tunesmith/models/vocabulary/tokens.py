"""Tokens that a run adds to the tokenizer."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase

from tunesmith.config.model import ModelConfig
from tunesmith.errors import ModelError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NewTokens:
    """What the settings ask to be added, whether the tokenizer has it already or not."""

    words: tuple[str, ...] = ()
    """Tokens of visible text: they are part of answers, and decoding shows them."""

    controls: tuple[str, ...] = ()
    """Special tokens: decoding for a reader leaves them out."""

    descriptions: Mapping[str, str] = field(default_factory=dict)
    """What a token means, in words the model knows."""

    @property
    def all(self) -> tuple[str, ...]:
        """Every token, in the order in which they get their ids."""
        return (*self.words, *self.controls)


def read_new_tokens(config: ModelConfig) -> NewTokens:
    """Return the tokens that the settings add.

    Raises:
        ModelError: The file with descriptions cannot be read, or holds something else, or describes a token by nothing
            that is to begin from its description.
    """
    descriptions = _read_descriptions(config.new_special_tokens_config)
    empty = [token for token, description in descriptions.items() if not description.strip()]
    if empty and config.init_special_tokens.startswith("desc"):
        raise ModelError(
            f"new_special_tokens_config: {empty[0]!r} has no words, and init_special_tokens: "
            f"{config.init_special_tokens} begins from them. Describe it."
        )
    controls = dict.fromkeys((*config.add_special_tokens, *descriptions))
    both = [token for token in config.add_tokens if token in controls]
    if both:
        raise ModelError(
            f"add_tokens: {both[0]!r} is a special token too. Keep it in one of add_tokens and add_special_tokens."
        )
    return NewTokens(tuple(dict.fromkeys(config.add_tokens)), tuple(controls), descriptions)


def add_new_tokens(tokenizer: PreTrainedTokenizerBase, config: ModelConfig) -> None:
    """Add the tokens of the settings to a tokenizer; those it has already stay what they are."""
    new = read_new_tokens(config)
    before = len(tokenizer)
    # Not normalized: a tokenizer that puts a space before each text must find the token as it is written.
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in new.words])
    tokenizer.add_tokens([AddedToken(text, special=True, normalized=False) for text in new.controls], True)
    if len(tokenizer) > before:
        logger.info("%d new tokens, %d in all", len(tokenizer) - before, len(tokenizer))


def _read_descriptions(source: str | Mapping[str, str] | None) -> Mapping[str, str]:
    if source is None:
        return {}
    if isinstance(source, Mapping):
        return dict(source)
    setting = "new_special_tokens_config"
    try:
        content = yaml.safe_load(Path(source).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        first = str(error).splitlines()[0]
        raise ModelError(
            f"{setting}: {source} cannot be read as YAML: {first}. Write lines `token: meaning`."
        ) from error
    if not isinstance(content, dict) or not all(isinstance(part, str) for pair in content.items() for part in pair):
        raise ModelError(
            f"{setting}: {source} has to map tokens to what they mean, one line `'<token>': some words` for each."
        )
    return content
