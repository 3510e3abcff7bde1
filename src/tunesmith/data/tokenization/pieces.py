"""Text pieces of a row to token ids, such that a prompt has exactly the ids that serving sends.

Pieces may hold marks (`chat.literals.MARK`) where no token may reach over: there a piece is cut, and the mark is gone.

Two ways, both with the border between prompt and answer always between two tokens:

`ApartEncoder` tokenises every piece by itself, in large batches. That is right, and fastest, for tokenizers that treat
a text the same wherever it stands (byte-level BPE: GPT-2, Qwen, Llama 3; also Gemma). Words that come again are looked
up (`remembered`).

`TogetherEncoder` tokenises the row in one go and finds the borders by offsets. It is for tokenizers that put a space
before a text or swallow the space around a special token (Llama 2, Phi 3), where pieces by themselves come out
differently. Where one token reaches over a border, the row is split there.

`build_piece_encoder` finds out which one a tokenizer and a template need.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, islice
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from tunesmith.data.chat.literals import MARK
from tunesmith.data.tokenization.engine import prepared_engine
from tunesmith.data.tokenization.remembered import RememberingTokenizer

Ids = NDArray[np.int32]
"""Ids of a piece. Shape [tokens]; not to be written to."""

Offsets = Sequence[tuple[int, int]]
_ANCHORS = ("\n", ",", "x", "。", "0")


class PieceIds(NamedTuple):
    """Tokens of one piece, each with the characters of the piece that it covers."""

    ids: list[int]
    offsets: Offsets


class PieceEncoder(Protocol):
    """Turns the pieces of rows into ids. Implementations can be pickled."""

    def encode(self, rows: Sequence[Sequence[str]]) -> list[list[Ids]]:
        """Return the ids of each piece of each row."""
        ...

    def locate(self, row: Sequence[str]) -> list[PieceIds]:
        """Return ids and character offsets for each piece of one row."""
        ...


class ApartEncoder:
    """Tokenises every piece by itself."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._texts = RememberingTokenizer(tokenizer)

    def encode(self, rows: Sequence[Sequence[str]]) -> list[list[Ids]]:
        """See `PieceEncoder.encode`."""
        ids = iter(self._texts.encode(list(chain.from_iterable(rows))))
        return [list(islice(ids, len(row))) for row in rows]

    def locate(self, row: Sequence[str]) -> list[PieceIds]:
        """See `PieceEncoder.locate`."""
        encoded = prepared_engine(self._tokenizer).encode_batch(list(row), add_special_tokens=False)
        return [PieceIds(encoding.ids, encoding.offsets) for encoding in encoded]


class TogetherEncoder:
    """Tokenises every row in one go and finds the borders of its pieces by offsets."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder
        self._swallows_before = frozenset(number for number, token in added.items() if token.lstrip)
        self._swallows_after = frozenset(number for number, token in added.items() if token.rstrip)

    def encode(self, rows: Sequence[Sequence[str]]) -> list[list[Ids]]:
        """See `PieceEncoder.encode`."""
        texts = ["".join(row) for row in rows]
        encoded = prepared_engine(self._tokenizer).encode_batch(texts, add_special_tokens=False)
        return [
            [_array(piece.ids) for piece in self._cut(row, text, PieceIds(encoding.ids, encoding.offsets))]
            for row, text, encoding in zip(rows, texts, encoded, strict=True)
        ]

    def locate(self, row: Sequence[str]) -> list[PieceIds]:
        """See `PieceEncoder.locate`."""
        text = "".join(row)
        return self._cut(row, text, self._encode_one(text))

    def _encode_one(self, text: str) -> PieceIds:
        encoding = prepared_engine(self._tokenizer).encode(text, add_special_tokens=False)
        return PieceIds(encoding.ids, encoding.offsets)

    def _cut(self, row: Sequence[str], text: str, tokens: PieceIds) -> list[PieceIds]:
        """Cut the tokens of a row at the borders of its pieces, tokenising again where a token reaches over one."""
        pieces: list[PieceIds] = []
        base = 0  # the character of the row at which `tokens` begin
        first = 0  # the first token that is not yet in a piece
        for start, end in _borders(row):
            border = end - base
            last = self._token_border(tokens, border, text[base:])
            if last is None:
                left = self._continue(text[base:end], is_start=base == 0)
                # Tokens before the one that reaches over are the same in the shorter text, so that `first` still holds.
                pieces.append(_shifted(PieceIds(left.ids[first:], left.offsets[first:]), start - base))
                tokens, base, first = self._continue(text[end:], is_start=False), end, 0
                continue
            pieces.append(_shifted(PieceIds(tokens.ids[first:last], tokens.offsets[first:last]), start - base))
            first = last
        return pieces

    def _token_border(self, tokens: PieceIds, border: int, text: str) -> int | None:
        """Return the number of tokens before a border, or nothing where a token reaches over it.

        A token that swallowed space around it belongs to the side where its own text is.
        """
        if border >= len(text):
            return len(tokens.ids)
        place = bisect_left(tokens.offsets, (border, 0))
        if place == 0:
            return 0 if border == 0 else None
        start, end = tokens.offsets[place - 1]
        if end == border:
            return place
        token = tokens.ids[place - 1]
        if end > border and token in self._swallows_before and text[start:border].isspace():
            return place - 1
        if end > border and token in self._swallows_after and text[border:end].isspace():
            return place
        return None  # over the border, or the space before it went into the next token

    def _continue(self, text: str, *, is_start: bool) -> PieceIds:
        """Tokenise text that stands after other text: without the space put before the start of a text.

        Raises:
            ValueError: Every anchor grows together with the text; no real tokenizer is known to do that.
        """
        if is_start or not text:
            return self._encode_one(text)
        for anchor in _ANCHORS:
            alone = self._encode_one(anchor).ids
            joined = self._encode_one(anchor + text)
            size = len(alone)
            if joined.ids[:size] == alone and joined.offsets[size - 1][1] == len(anchor):
                return _shifted(PieceIds(joined.ids[size:], joined.offsets[size:]), len(anchor))
        raise _joins_everything(text)


class SlowEncoder:
    """For tokenizers without offsets: every piece is what the text up to its end adds to the text before it."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer

    def encode(self, rows: Sequence[Sequence[str]]) -> list[list[Ids]]:
        """See `PieceEncoder.encode`."""
        return [list(map(_array, self._encode_row(row))) for row in rows]

    def locate(self, row: Sequence[str]) -> list[PieceIds]:
        """See `PieceEncoder.locate`; each token is said to cover the whole piece, so that nothing inside is cut."""
        return [
            PieceIds(ids, [(0, len(text))] * len(ids)) for ids, text in zip(self._encode_row(row), row, strict=True)
        ]

    def _encode_row(self, row: Sequence[str]) -> list[list[int]]:
        pieces: list[list[int]] = []
        before: list[int] = []
        for piece, text in zip(row, accumulate(row), strict=True):
            until = self._encode_one(text)
            if until[: len(before)] == before:
                pieces.append(until[len(before) :])
            else:  # a token reaches over the border: split there
                pieces.append(self._continue(piece))
            before = before + pieces[-1]
        return pieces

    def _encode_one(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _continue(self, text: str) -> list[int]:
        """Tokenise text that stands after other text, see `TogetherEncoder._continue`."""
        for anchor in _ANCHORS:
            alone = self._encode_one(anchor)
            joined = self._encode_one(anchor + text)
            if joined[: len(alone)] == alone:
                return joined[len(alone) :]
        raise _joins_everything(text)


class CuttingEncoder:
    """Cuts pieces at their marks and gives the parts to another encoder."""

    def __init__(self, inner: PieceEncoder) -> None:
        self.inner = inner

    def encode(self, rows: Sequence[Sequence[str]]) -> list[list[Ids]]:
        """See `PieceEncoder.encode`."""
        marked = [place for place, row in enumerate(rows) if any(MARK in piece for piece in row)]
        if not marked:
            return self.inner.encode(rows)
        cut = list(rows)
        for place in marked:
            cut[place] = _parts(rows[place])
        encoded = self.inner.encode(cut)
        for place in marked:
            parts = iter(encoded[place])
            encoded[place] = [np.concatenate(list(islice(parts, piece.count(MARK) + 1))) for piece in rows[place]]
        return encoded

    def locate(self, row: Sequence[str]) -> list[PieceIds]:
        """See `PieceEncoder.locate`; marks count as characters."""
        if not any(MARK in piece for piece in row):
            return self.inner.locate(row)
        parts = iter(zip(_parts(row), self.inner.locate(_parts(row)), strict=True))
        return [_joined_parts(islice(parts, piece.count(MARK) + 1)) for piece in row]


def _parts(row: Sequence[str]) -> list[str]:
    return [part for piece in row for part in piece.split(MARK)]


def _joined_parts(parts: Iterable[tuple[str, PieceIds]]) -> PieceIds:
    ids: list[int] = []
    offsets: list[tuple[int, int]] = []
    position = 0
    for text, located in parts:
        ids += located.ids
        offsets += _shifted(located, -position).offsets
        position += len(text) + len(MARK)
    return PieceIds(ids, offsets)


def build_piece_encoder(tokenizer: PreTrainedTokenizerBase, samples: Sequence[Sequence[str]]) -> PieceEncoder:
    """Return the fastest encoder that is right for a tokenizer.

    Args:
        tokenizer: The tokenizer.
        samples: Pieces of a few rows as the template makes them, on which the ways are compared.
    """
    if not tokenizer.is_fast:
        return CuttingEncoder(SlowEncoder(tokenizer))
    apart, together = ApartEncoder(tokenizer), TogetherEncoder(tokenizer)
    return CuttingEncoder(apart if _agree(apart, together, samples) else together)


def _agree(apart: PieceEncoder, together: PieceEncoder, samples: Sequence[Sequence[str]]) -> bool:
    """Return whether pieces by themselves come out as pieces in their row do."""
    return all(
        all(map(np.array_equal, one, other))
        for one, other in zip(apart.encode(samples), together.encode(samples), strict=True)
    )


def _array(ids: Sequence[int]) -> Ids:
    return np.array(ids, dtype=np.int32)


def _joins_everything(text: str) -> ValueError:
    return ValueError(f"the tokenizer joins every kind of text with {text[:20]!r}")


def _borders(row: Sequence[str]) -> Iterable[tuple[int, int]]:
    position = 0
    for piece in row:
        yield position, position + len(piece)
        position += len(piece)


def _shifted(piece: PieceIds, distance: int) -> PieceIds:
    if distance == 0:
        return piece
    return PieceIds(piece.ids, [(start - distance, end - distance) for start, end in piece.offsets])
