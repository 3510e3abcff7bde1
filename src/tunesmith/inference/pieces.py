"""Token ids back to text, piece by piece, without ever showing half a character."""

from collections.abc import Sequence
from typing import Protocol


class Decoder(Protocol):
    """What is needed of a tokenizer here."""

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of some tokens."""
        ...


class TextPieces:
    """Turns a growing list of tokens into pieces of text; the pieces joined are the text of all tokens.

    A character may be spread over several tokens, and a tokenizer may put or drop a space depending on the token
    before. So a piece is the difference between two decodings that start at the same token, and is held back while
    its last character is incomplete:

        tokens   [E4] [BD A0] [E5 A5]   [BD]
        pieces    ""    "你"      ""     "好"
    """

    def __init__(self, tokenizer: Decoder, *, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._ids: list[int] = []
        self._start = 0  # decoding starts here: far enough back for the tokenizer to know what stands before
        self._shown = 0  # tokens before this one have been given out

    def add(self, token: int) -> str:
        """Return the text that became complete with one more token, often with some delay."""
        self._ids.append(token)
        return self._take(is_last=False)

    def finish(self) -> str:
        """Return what was held back."""
        return self._take(is_last=True)

    def _take(self, *, is_last: bool) -> str:
        before = self._decode(self._ids[self._start : self._shown])
        text = self._decode(self._ids[self._start :])
        if text.endswith("\ufffd") and not is_last:
            return ""
        self._start, self._shown = self._shown, len(self._ids)
        return text[len(before) :]

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip_special_tokens)
