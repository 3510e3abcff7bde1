"""Texts to ids, by units that are encoded once and remembered.

Tokenizing the same words again and again is most of the work of preparing a data set: 95 of 100 words of instruction
rows have been seen in the rows before. Looking up a unit takes a tenth of the time of encoding it.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from tunesmith.data.tokenization.engine import prepared_engine
from tunesmith.data.tokenization.units import build_cutter

MOST_REMEMBERED = 2**19
"""Units that are remembered, about 100 MB of them: those of about 100,000 rows of instructions. Frequent ones come
first."""

LONGEST_REMEMBERED = 32
"""Characters of a unit that may come again; longer ones are paragraphs of Chinese or Japanese, or rubbish."""


class RememberingTokenizer:
    """Gives the ids of texts, each by itself and without special tokens around it. Instances can be pickled.

    The ids are those of the tokenizer for the whole text: see `units`.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._cutter = build_cutter(tokenizer)
        self._known: dict[str, bytes] = {}

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """Return the ids of each text. Shape [tokens] each; not writable."""
        known = self._known
        cut = list(map(self._cutter.cut, texts))
        new = list(set(chain.from_iterable(cut)) - known.keys())
        known.update(zip(new, self._encode(new), strict=True))
        ids = [np.frombuffer(b"".join(map(known.__getitem__, units)), dtype=np.int32) for units in cut]
        self._forget_rare(new)
        return ids

    def _encode(self, units: Sequence[str]) -> Iterable[bytes]:
        encoded = prepared_engine(self._tokenizer).encode_batch_fast(units, add_special_tokens=False)
        return (array("i", encoding.ids).tobytes() for encoding in encoded)

    def _forget_rare(self, new: Iterable[str]) -> None:
        """Forget units that are long, and, once there are enough, all new ones."""
        known = self._known
        is_full = len(known) > MOST_REMEMBERED
        for unit in new:
            if is_full or len(unit) > LONGEST_REMEMBERED:
                del known[unit]
