r"""Where a text may be cut so that each part by itself has the very ids that it has inside the text.

Byte-level tokenizers first cut a text into words by regular expressions, then encode every word for itself. None of
the expressions in use lets a word go on over a space: `Hello there` is `Hello` and ` there`, whatever stands around
it. So a text is the sum of units that begin with a space, most of which have been seen before (see `remembered`). This
module knows which expressions behave so; a tokenizer with any other one gets its texts whole.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer
from transformers import PreTrainedTokenizerBase

_UNIT = re.compile(
    r"""
    \s*+ \S++                                # space, and the text after it ...
    (?: (?! \n [^\W_] ) [^\S\ ] \s*+ \S*+ )*+  # ... and on over line ends and tabs, before which nothing may be cut
    (?: \n (?= [^\W_] ) )?+                  # a single line end before a letter or digit is a good end
    | \s+
    """,
    re.VERBOSE,
)
r"""A unit ends before a space that follows text, or between one `\n` that follows text and a letter or digit.

In a run of several `\n` the expressions look at what follows, and after `.\n` one of them (`o200k`) goes on over `/`.
What Python calls a space (`\s`) includes all that the tokenizers call one.
"""

_CONTRACTIONS = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)", "'s", "'t", "'re", "'ve", "'m", "'ll", "'d")
_LETTERS = (r" ?\p{L}+", r"[^\r\n\p{L}\p{N}]?\p{L}+", r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", "[一-龥぀-ゟ゠-ヿ]+")
_CASED_LETTERS = tuple(
    rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]{first}[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]{rest}{ending}"
    for first, rest in (("*", "+"), ("+", "*"))
    for ending in ("", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?")
)
_NUMBERS = (r" ?\p{N}+", r"\p{N}", r"\p{N}+", r"\p{N}{1,3}")
_OTHERS = (
    r" ?[^\s\p{L}\p{N}]+",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    r" ?[\p{P}\p{S}]+[\r\n]*",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+",
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
)
_SPACE = r"\s+"
_SPACES = (r"\s*[\r\n]+", r"\s+(?!\S)", _SPACE)
_SAFE_BRANCHES = frozenset({*_CONTRACTIONS, *_LETTERS, *_CASED_LETTERS, *_NUMBERS, *_OTHERS, *_SPACES})
"""Branches of the expressions of GPT-2, GPT-4 and GPT-4o, Llama 3, Qwen, DeepSeek and their kin. None matches text and
then a space, and none looks at what comes after a space that follows text."""


class Cutter(Protocol):
    """Cuts a text into units. Implementations can be pickled."""

    def cut(self, text: str) -> list[str]:
        """Return the units, which joined are the text."""
        ...


class WholeTexts:
    """Leaves a text whole."""

    def cut(self, text: str) -> list[str]:
        """See `Cutter.cut`."""
        return [text] if text else []


class WordUnits:
    """Cuts before spaces, and around the tokens that the tokenizer finds before it looks at anything else.

    Args:
        added: Texts of those tokens.
    """

    def __init__(self, added: Iterable[str]) -> None:
        longest_first = sorted(added, key=len, reverse=True)  # the tokenizer takes the longest at the leftmost place
        self._added = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else None

    def cut(self, text: str) -> list[str]:
        """See `Cutter.cut`."""
        if self._added is None:
            return _UNIT.findall(text)
        units: list[str] = []
        for place, part in enumerate(self._added.split(text)):
            if place % 2:
                units.append(part)
            elif part:
                units += _UNIT.findall(part)
        return units


def build_cutter(tokenizer: PreTrainedTokenizerBase) -> Cutter:
    """Return how texts of a fast tokenizer may be cut: into words, or not at all."""
    engine: Tokenizer = tokenizer.backend_tokenizer
    added = list(engine.get_added_tokens_decoder().values())
    found_in_words = [token.content for token in added if token.normalized]
    if (
        tokenizer.split_special_tokens
        or any(token.lstrip or token.rstrip or token.single_word for token in added)
        or any(re.search(r"\s", text) for text in found_in_words)
        or not _keeps_words_apart(engine)
    ):
        return WholeTexts()
    return WordUnits(token.content for token in added if not token.normalized)


def _keeps_words_apart(engine: Tokenizer) -> bool:
    """Return whether words never reach over a space, and nothing else looks over one."""
    return (
        isinstance(engine.model, BPE)
        and not engine.model.dropout
        and _described(engine.normalizer) in (None, {"type": "NFC"})  # which never joins anything with a space
        and _splits_at_spaces(_described(engine.pre_tokenizer))
    )


def _described(part: Normalizer | PreTokenizer | None) -> Any:
    """Return what a tokenizer file says of a part; the whole file holds the vocabulary and takes long to read."""
    return None if part is None else json.loads(part.__getstate__())


def _splits_at_spaces(pre_tokenizer: Mapping[str, Any] | None) -> bool:
    if pre_tokenizer is None:
        return False
    steps = pre_tokenizer["pretokenizers"] if pre_tokenizer["type"] == "Sequence" else [pre_tokenizer]
    return all(map(_is_safe, steps)) and any(map(_cuts_at_space, steps))


def _is_safe(step: Mapping[str, Any]) -> bool:
    """Return whether a step never joins over a space and treats a unit as it treats the text around it."""
    match step:
        case {"type": "Digits"}:
            return True
        case {"type": "ByteLevel", "add_prefix_space": added}:
            return not added
        case {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}:
            return all(branch in _SAFE_BRANCHES for branch in split_branches(pattern))
    return False


def _cuts_at_space(step: Mapping[str, Any]) -> bool:
    match step:
        case {"type": "ByteLevel", "use_regex": True}:
            return True
        case {"type": "Split", "pattern": {"Regex": pattern}}:
            return _SPACE in split_branches(pattern)
    return False


def split_branches(pattern: str) -> list[str]:
    """Return the alternatives of a regular expression: what its outermost `|` divide."""
    branches, depth, in_class, start, place = [], 0, False, 0, 0
    while place < len(pattern):
        character = pattern[place]
        if character == "\\":
            place += 1
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "|" and depth == 0:
            branches.append(pattern[start:place])
            start = place + 1
        place += 1
    return [*branches, pattern[start:]]
