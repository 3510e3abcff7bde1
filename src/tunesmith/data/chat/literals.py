"""Special-token text inside questions and tool results, kept from becoming control tokens.

A question may hold `<|im_end|>` as a word: in documentation, or from somebody who wants to speak with the voice of the
system. A mark is put inside such a text before it is rendered; where texts become ids, the text is cut at the mark, so
that no token reaches over it, and the mark is gone. Answers are left alone: their control tokens are meant.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

MARK = "\ufdd0"
"""A character that Unicode keeps out of texts (a noncharacter)."""

_ROLES = ("user", "tool")


class LiteralTexts:
    """Puts marks into messages.

    Args:
        tokens: Texts of the special tokens, each of two characters or more.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        longest_first = sorted(tokens, key=len, reverse=True)
        self._firsts = tuple({token[0] for token in tokens})
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def protect(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return messages with a mark inside each special-token text of questions and tool results."""
        return [self._protected(message) if message["role"] in _ROLES else message for message in messages]

    def _protected(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        content = message.get("content")
        if not isinstance(content, str):
            return message
        for first in self._firsts:  # most texts hold none of the few characters that special tokens begin with
            if first in content:
                return {**message, "content": self._pattern.sub(_with_mark, content)}
        return message


def _with_mark(found: re.Match[str]) -> str:
    text = found[0]
    return text[0] + MARK + text[1:]


def special_texts(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Return the texts of the special tokens of a tokenizer, without those of one character: they cannot be cut."""
    added = tokenizer.added_tokens_decoder.values()
    return tuple(sorted(str(token) for token in added if token.special and len(str(token)) > 1))


def has_token(tokenizer: PreTrainedTokenizerBase, text: str) -> bool:
    """Return whether a text is one token of the vocabulary."""
    number = tokenizer.convert_tokens_to_ids(text)
    return number is not None and tokenizer.convert_ids_to_tokens(number) == text
