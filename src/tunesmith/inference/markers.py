"""End markers that a tokenizer writes as several tokens: generation stops at their text instead.

This happens where a template's marker is not in the vocabulary, as with `<|im_end|>` on a model of the Llama 2 family.
"""

from collections.abc import Sequence

from tunesmith.inference.pieces import Decoder


class MarkerFilter:
    """Passes text on up to the first marker, holding back what may be the beginning of one.

    marker "<end>"     pieces  "Hi <"  "en"  "d> and"
                       shown   "Hi "   ""    ""          is_found
    """

    def __init__(self, markers: Sequence[str]) -> None:
        self._markers = tuple(markers)
        self._held = ""
        self.is_found = False

    def add(self, piece: str) -> str:
        """Return the text that is certainly not part of a marker."""
        if self.is_found:
            return ""
        text = self._held + piece
        places = [place for marker in self._markers if (place := text.find(marker)) >= 0]
        if places:
            self.is_found, self._held = True, ""
            return text[: min(places)]
        kept = max((_overlap(text, marker) for marker in self._markers), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def finish(self) -> str:
        """Return what was held back and turned out not to be a marker."""
        held, self._held = self._held, ""
        return held


def cut_at_marker(ids: Sequence[int], markers: Sequence[str], tokenizer: Decoder) -> list[int]:
    """Return the tokens before the first marker; a token that holds the end of the answer and the marker is left out.

    Args:
        ids: Tokens of a completion.
        markers: Texts that end it.
        tokenizer: Makes text of tokens.
    """
    text = tokenizer.decode(ids, skip_special_tokens=False)
    places = [place for marker in markers if (place := text.find(marker)) >= 0]
    if not places:
        return list(ids)
    count = len(ids)
    while count and len(tokenizer.decode(ids[:count], skip_special_tokens=False)) > min(places):
        count -= 1
    return list(ids[:count])


def _overlap(text: str, marker: str) -> int:
    """Return the length of the longest end of a text that is the beginning of a marker."""
    for length in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:length]):
            return length
    return 0
