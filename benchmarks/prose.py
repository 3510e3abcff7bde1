"""Made rows whose words come as often as those of real text: few all the time, and new ones without end.

Tools that remember words gain from the first and pay for the second, so that rows of a few hundred words would flatter
them. Words are drawn by Zipf's law with the exponent that gives about as many different ones (marks included) as a
thousand alpaca rows have: 14,200 in their first 60,000 words and 23,200 in 125,000; here 12,300 and 21,000, and in
ten thousand rows 121,000 where 108,000 are to be expected.
"""

import random
from bisect import bisect
from itertools import accumulate

from benchmarks.rows import ANSWER_TOKENS, COMMON_WORDS, QUESTION_TOKENS, Row, draw_length

_EXPONENT = 1.2
_WORDS_KNOWN = 1_000_000
_CONSONANTS = "bcdfghklmnprstvz"
_SYLLABLES = [first + vowel + last for first in _CONSONANTS for vowel in "aeiou" for last in ("", "n")]
_SENTENCE_WORDS = 14
_COMMA_SHARE = 0.06


def make_prose_rows(count: int, seed: int) -> list[Row]:
    """Return `count` rows whose lengths follow those of real alpaca rows, and whose words follow Zipf's law."""
    source = random.Random(seed)  # noqa: S311
    weights = list(accumulate(rank**-_EXPONENT for rank in range(1, _WORDS_KNOWN + 1)))
    return [
        {
            "instruction": _make_text(source, weights, draw_length(source, QUESTION_TOKENS)),
            "input": "",
            "output": _make_text(source, weights, draw_length(source, ANSWER_TOKENS)),
        }
        for _ in range(count)
    ]


def _make_text(source: random.Random, weights: list[float], tokens: int) -> str:
    """Return sentences of about `tokens` tokens."""
    words: list[str] = []
    starts = True
    while tokens > 0:
        rank = bisect(weights, source.random() * weights[-1])
        word, size = _word(rank)
        words.append(word.capitalize() if starts else word)
        tokens -= size
        starts = source.random() < 1 / _SENTENCE_WORDS
        if starts or source.random() < _COMMA_SHARE:
            words[-1] += "." if starts else ","
            tokens -= 1
    return " ".join(words)


def _word(rank: int) -> tuple[str, int]:
    """Return the word of a rank and about how many tokens it is."""
    if rank < len(COMMON_WORDS):
        return COMMON_WORDS[rank], 1
    rank -= len(COMMON_WORDS)
    syllables = []
    while rank or len(syllables) < 2:
        rank, place = divmod(rank, len(_SYLLABLES))
        syllables.append(_SYLLABLES[place])
    return "".join(syllables), len(syllables)
