"""Documents of continued pre-training to ids: all of the text, and the end token, which is always learnt."""

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerBase

from tunesmith.data.records import Document, Dropped, Record
from tunesmith.data.tokenization.encoded import NOTHING_LOST, EncodedRow, EncodingOptions, Truncation
from tunesmith.data.tokenization.pieces import Ids, build_piece_encoder
from tunesmith.errors import DataError

_CUT: frozenset[Truncation] = frozenset({"answer_cut", "end_marker_lost"})


class DocumentEncoder:
    """Encodes documents as start token (where the tokenizer puts one), text, end token.

    With packing documents stay whole, for they are joined and cut afterwards. Without, a document longer than
    `cutoff_len` loses its end.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, options: EncodingOptions) -> None:
        if tokenizer.eos_token_id is None:
            raise DataError(
                "The tokenizer has no end token (eos_token), so that a model could not learn where documents end. "
                "Name one of its tokens as eos_token in the tokenizer_config.json of the model."
            )
        self._options = options
        self._start_ids = np.array(_start_ids(tokenizer), dtype=np.int32)
        self._end_id = np.array([tokenizer.eos_token_id], dtype=np.int32)
        self._pieces = build_piece_encoder(tokenizer, ())

    def encode(self, records: Sequence[Record]) -> list[list[EncodedRow] | Dropped]:
        """Return one row for each document; every position is learnt."""
        texts = [[record.text] for record in records if isinstance(record, Document)]
        if len(texts) != len(records):
            raise TypeError("a document encoder was given records that are not documents")
        return [[self._encode_ids(ids)] for (ids,) in self._pieces.encode(texts)]

    def _encode_ids(self, ids: Ids) -> EncodedRow:
        whole = np.concatenate([self._start_ids, ids, self._end_id])
        limit = self._options.cutoff_len
        fits = self._options.packing or len(whole) <= limit
        input_ids = whole if fits else whole[:limit]
        spans = np.array([0, len(input_ids)], dtype=np.int32)
        return EncodedRow(input_ids, spans, NOTHING_LOST if fits else _CUT)


def _start_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return what the tokenizer puts before a text."""
    bare = tokenizer.encode("a", add_special_tokens=False)
    dressed: list[int] = tokenizer.encode("a", add_special_tokens=True)
    for place in range(len(dressed) - len(bare) + 1):
        if dressed[place : place + len(bare)] == bare:
            return dressed[:place]
    return []
