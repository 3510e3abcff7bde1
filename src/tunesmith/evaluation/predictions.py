"""Answers that a model gives to the prompts of a data set, written beside the expected ones."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from transformers import PreTrainedTokenizerBase

from tunesmith.config import GenerationConfig
from tunesmith.data.batches import Example
from tunesmith.errors import DataError
from tunesmith.evaluation.text_metrics import score_texts
from tunesmith.inference.base import TextGenerator
from tunesmith.runtime.files import write_text_atomic

_Item = TypeVar("_Item")

FILE_NAME = "generated_predictions.jsonl"


class ExampleSet(Protocol):
    """A data set of tokenised rows; a packed one gives several rows per index."""

    def __len__(self) -> int:
        """Return the number of indices."""
        ...

    def __getitem__(self, index: int) -> Example | list[Example]:
        """Return the row or rows of an index."""
        ...


def predict(
    generator: TextGenerator,
    dataset: ExampleSet,
    tokenizer: PreTrainedTokenizerBase,
    path: str | Path,
    *,
    options: GenerationConfig | None = None,
    chunk_rows: int = 64,
) -> dict[str, float]:
    """Answer the last question of every row, write the answers, and score them against the expected ones.

    With several processes every one answers its share of the rows; the main one writes the file.

    Args:
        generator: What continues prompts.
        dataset: Rows whose last answer is asked for.
        tokenizer: Tokenizer of the model, for the texts.
        path: File to write: one `{"prompt": ..., "predict": ..., "label": ...}` per line, in the order of the rows.
        options: How answers are chosen; greedily by default, so that runs can be compared.
        chunk_rows: Rows that are handed to the generator at once.

    Returns:
        `bleu-4`, `rouge-1`, `rouge-2`, `rouge-l` from 0 to 100, and `num_predictions`.

    Raises:
        DataError: There are no rows, or a row has no prompt that is not learnt itself.
    """
    chosen = options or GenerationConfig().greedy()
    process, num_processes = _process_of_this()
    own_rows = [row for number, row in enumerate(_split_rows(dataset)) if number % num_processes == process]
    answers: list[list[int]] = []
    for start in range(0, len(own_rows), chunk_rows):
        answers += generator.generate([prompt for prompt, _ in own_rows[start : start + chunk_rows]], chosen)
    lines = [
        _render_line(tokenizer, prompt, answer, label, skip_special_tokens=chosen.skip_special_tokens)
        for (prompt, label), answer in zip(own_rows, answers, strict=True)
    ]
    lines = _gather_in_order(lines, num_processes)
    if not lines:
        raise DataError(
            "There is no row to predict: the evaluation set is empty. Name one with rows in eval_dataset, or set "
            "val_size."
        )
    if process == 0:
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        write_text_atomic(path, text)
    scores = score_texts([line["predict"] for line in lines], [line["label"] for line in lines])
    return {**scores, "num_predictions": len(lines)}


def split_last_answer(example: Example) -> tuple[list[int], list[int]]:
    """Return the token ids before the last learnt range of a row, and those in it.

    ids    [q1 q1 a1 a1 q2 q2 a2 a2]
    spans  [      2     4,      6     8]   ->   [q1 q1 a1 a1 q2 q2], [a2 a2]
    """
    ids, spans = example["input_ids"].tolist(), example["trained_spans"].tolist()
    start, end = spans[-2], spans[-1]
    if start == 0:
        raise DataError(
            f"Row {example['row_id']} has no prompt: all of it is learnt, so there is nothing to answer. "
            "Predictions need rows with questions, and train_on_prompt set to false."
        )
    return ids[:start], ids[start:end]


def _split_rows(dataset: ExampleSet) -> Iterator[tuple[list[int], list[int]]]:
    for index in range(len(dataset)):
        entry = dataset[index]
        for example in entry if isinstance(entry, list) else [entry]:
            yield split_last_answer(example)


def _render_line(
    tokenizer: PreTrainedTokenizerBase,
    prompt: Sequence[int],
    answer: Sequence[int],
    label: Sequence[int],
    *,
    skip_special_tokens: bool,
) -> dict[str, str]:
    return {
        # The prompt is shown as the model saw it, role markers included.
        "prompt": str(tokenizer.decode(prompt, skip_special_tokens=False)),
        "predict": str(tokenizer.decode(answer, skip_special_tokens=skip_special_tokens)),
        "label": str(tokenizer.decode(label, skip_special_tokens=skip_special_tokens)),
    }


def _process_of_this() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def _gather_in_order(lines: list[dict[str, str]], num_processes: int) -> list[dict[str, str]]:
    """Collect the lines of all processes, in the order of the rows."""
    if num_processes == 1:
        return lines
    shares: list[list[dict[str, str]]] = [[] for _ in range(num_processes)]
    torch.distributed.all_gather_object(shares, lines)
    return interleave(shares)


def interleave(shares: Sequence[Sequence[_Item]]) -> list[_Item]:
    """Undo dealing out: process p of n holds the items p, p + n, p + 2n ...

    [[a, d], [b, e], [c]] -> [a, b, c, d, e]
    """
    rounds = max(map(len, shares))
    return [share[number] for number in range(rounds) for share in shares if number < len(share)]
