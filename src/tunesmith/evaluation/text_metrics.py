"""How close generated texts come to the expected ones: BLEU-4 and ROUGE, for Chinese as for English.

BLEU is that of the whole set (sacrebleu), not a mean over rows, so that long rows count for more than short ones and
the figure can be compared with published ones. ROUGE is the mean F1 over rows (rouge-score). Both count a Chinese
character as a word.
"""

import re
from collections.abc import Sequence
from typing import Any

from tunesmith.runtime.optional import require

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_KANA_HANGUL = "\u3040-\u30ff\uac00-\ud7af"
_HAS_HAN = re.compile(f"[{_HAN}]")
_WORDS = re.compile(f"[{_HAN}{_KANA_HANGUL}]|[^\\W_{_HAN}{_KANA_HANGUL}]+")
_ROUGE_NAMES = {"rouge1": "rouge-1", "rouge2": "rouge-2", "rougeL": "rouge-l"}


class WordTokenizer:
    """Splits text into lower-case words; every Chinese, Japanese or Korean character is one.

    "Tom吃了3个apples." -> ["tom", "吃", "了", "3", "个", "apples"]
    """

    def tokenize(self, text: str) -> list[str]:
        """Return the words of a text, in order, without punctuation."""
        return _WORDS.findall(text.lower())


def score_texts(predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Compare generated texts with the expected ones, row by row.

    Args:
        predictions: Generated texts.
        references: Expected texts, as many.

    Returns:
        `bleu-4`, `rouge-1`, `rouge-2` and `rouge-l`, each from 0 (nothing in common) to 100 (the same words).

    Raises:
        ValueError: The two are not of the same length, or there are none.
    """
    if len(predictions) != len(references) or not references:
        raise ValueError(f"{len(predictions)} predictions and {len(references)} references cannot be compared")
    return {"bleu-4": _bleu(predictions, references), **_rouge(predictions, references)}


def _bleu(predictions: Sequence[str], references: Sequence[str]) -> float:
    metrics = require("sacrebleu.metrics", "metrics", "compute BLEU")
    is_chinese = any(_HAS_HAN.search(text) for text in references)
    bleu: Any = metrics.BLEU(tokenize="zh" if is_chinese else "13a", effective_order=True)
    return float(bleu.corpus_score(list(predictions), [list(references)]).score)


def _rouge(predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    rouge = require("rouge_score.rouge_scorer", "metrics", "compute ROUGE")
    scorer: Any = rouge.RougeScorer(list(_ROUGE_NAMES), tokenizer=WordTokenizer())
    sums = dict.fromkeys(_ROUGE_NAMES, 0.0)
    for prediction, reference in zip(predictions, references, strict=True):
        for name, score in scorer.score(reference, prediction).items():
            sums[name] += score.fmeasure
    return {_ROUGE_NAMES[name]: 100 * total / len(references) for name, total in sums.items()}
