"""The rows that a throughput benchmark trains on: from a file, or made on the spot."""

import json
import math
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, str]

# Length quantiles, in tokens, of the questions and answers of a thousand alpaca-style rows (the chat template's own
# tokens not counted). Real text has this long tail; equal lengths would hide what padding costs.
_QUANTILES = (0.0, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.0)
QUESTION_TOKENS = (6, 9, 10, 13, 17, 24, 35, 45, 89, 167)
ANSWER_TOKENS = (2, 9, 12, 26, 107, 258, 360, 397, 509, 595)

_TEMPLATE_TOKENS = 34
"""Of a question and an answer, with the template's own system message."""

_LENGTH_SPREAD = 0.7
"""Standard deviation of the logarithm of a chat's length."""

# Words that are one token, with the space before them, in the usual vocabularies.
_WORD_TEXT = """
the of and to in is that for it as was with be by on not he his but at are this have from which one you had all her she
there would their we him been has when who will more no if out so said what up its about than into them can only other
time new some could these two may first then do any like my now over such our man me even most made after also did many
before must through years where much your way well down should because each just those people how too little state good
very make world still own see men work long here get both between life being under three never day same another know
while last might us great old year off come since go against came right
"""
COMMON_WORDS = _WORD_TEXT.split()


def load_rows(path: Path, count: int, seed: int) -> list[Row]:
    """Return `count` alpaca rows of a JSON file in a seeded random order, again from the start when it has fewer."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    random.Random(seed).shuffle(rows)  # noqa: S311
    kept = [{key: row.get(key) or "" for key in ("instruction", "input", "output")} for row in rows]
    return [kept[index % len(kept)] for index in range(count)]


def load_pairs(path: Path, count: int, seed: int, *, fits: Callable[[list[str]], bool]) -> list[dict[str, Any]]:
    """Return `count` sharegpt pairs of a JSON file in a seeded random order, again from the start when it has fewer.

    Args:
        path: Rows with `conversations`, `chosen` and `rejected`.
        count: Rows wanted.
        seed: Of the order.
        fits: Whether a prompt and a completion, given as the texts of their messages, are short enough. Pairs of which
            either completion is not are left out: every tool cuts them at another place.
    """
    rows = [
        row
        for row in json.loads(path.read_text(encoding="utf-8"))
        if all(
            fits([*(message["value"] for message in row["conversations"]), row[side]["value"]])
            for side in ("chosen", "rejected")
        )
    ]
    if not rows:
        raise SystemExit(f"no pair of {path} is short enough: raise --cutoff-len")
    random.Random(seed).shuffle(rows)  # noqa: S311
    return [rows[index % len(rows)] for index in range(count)]


def make_rows(count: int, seed: int) -> list[Row]:
    """Return `count` rows of common words whose lengths follow those of real alpaca rows."""
    source = random.Random(seed)  # noqa: S311
    return [
        {
            "instruction": _make_text(source, draw_length(source, QUESTION_TOKENS)),
            "input": "",
            "output": _make_text(source, draw_length(source, ANSWER_TOKENS)),
        }
        for _ in range(count)
    ]


def make_rows_of_mean(count: int, mean_tokens: int, limit: int, seed: int) -> list[Row]:
    """Return `count` rows of about `mean_tokens` on average, with the long tail that chats have.

    Lengths are log-normal, as in the mix `chats` of `packing_fill`: two of five rows have less than two thirds of
    the mean, one of forty more than three times as much. The chat template's own tokens are counted as
    `_TEMPLATE_TOKENS`. No row is longer than `limit` tokens, so that nothing is cut off whatever is done about packing.
    """
    source = random.Random(seed)  # noqa: S311
    centre = math.log(mean_tokens) - _LENGTH_SPREAD**2 / 2
    rows = []
    for _ in range(count):
        length = min(round(source.lognormvariate(centre, _LENGTH_SPREAD)), limit)
        words = max(length - _TEMPLATE_TOKENS, 2)
        question = max(1, min(20, words // 4))
        rows.append(
            {
                "instruction": _make_text(source, question),
                "input": "",
                "output": _make_text(source, words - question),
            }
        )
    return rows


def draw_length(source: random.Random, lengths: Sequence[int]) -> int:
    """Return a length drawn from quantiles, linear between two of them."""
    place = source.random()
    upper = min(bisect_right(_QUANTILES, place), len(_QUANTILES) - 1)
    lower = upper - 1
    share = (place - _QUANTILES[lower]) / (_QUANTILES[upper] - _QUANTILES[lower])
    return round(lengths[lower] + share * (lengths[upper] - lengths[lower]))


def _make_text(source: random.Random, tokens: int) -> str:
    return " ".join(source.choices(COMMON_WORDS, k=max(tokens, 1)))
