"""What the model will see of a row: its tokens, which of them are learnt, and what it shares a packed row with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
from transformers import PreTrainedTokenizerBase

from tunesmith.config import RunConfig
from tunesmith.data.batches import Example, PairExample
from tunesmith.data.inspection.source_rows import SourceRow, read_source_rows, read_streamed_row
from tunesmith.data.loading.datasets import PackedDataset
from tunesmith.data.preparation import Preparation
from tunesmith.data.prepared import PreparedData, TrainableDataset, find_examples
from tunesmith.data.streaming.places import is_streamed
from tunesmith.data.streaming.source import StreamSource


class TokenRun(NamedTuple):
    """Neighbouring tokens that are all learnt, or all not."""

    text: str
    ids: tuple[int, ...]
    is_trained: bool
    part: str = ""
    """Of rows with two completions: which of them, or the prompt. A run never reaches over two parts."""


@dataclass(frozen=True, slots=True)
class PreviewedSample:
    """One sample as the model sees it; the tokens of all runs in order are its input."""

    row_id: int
    runs: tuple[TokenRun, ...]
    source: SourceRow | None = None
    """The raw row it was made of; `None` where its files are not on this machine."""

    @property
    def num_tokens(self) -> int:
        """Tokens in the sample."""
        return sum(len(run.ids) for run in self.runs)

    @property
    def num_trained(self) -> int:
        """Tokens that are the target of a prediction."""
        return sum(len(run.ids) for run in self.runs if run.is_trained)

    def to_dict(self) -> dict[str, Any]:
        """Return the sample as JSON values."""
        return {
            **({} if is_streamed(self.row_id) else {"row": self.row_id + 1}),
            **_describe_source(self.source),
            "num_tokens": self.num_tokens,
            "num_trained": self.num_trained,
            "runs": [_describe_run(run) for run in self.runs],
        }


@dataclass(frozen=True, slots=True)
class Preview:
    """One row of the model's input: a single sample, or all samples of a packed row."""

    samples: tuple[PreviewedSample, ...]
    use: str
    """`train` or `evaluate`."""

    place: int
    """Number of the row among those for this use, from 1, in the order before shuffling."""

    is_packed: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return {
            "use": self.use,
            "place": self.place,
            "packed": self.is_packed,
            "samples": [sample.to_dict() for sample in self.samples],
        }


@dataclass(frozen=True, slots=True)
class DroppedPreview:
    """A row that the model will not see, and why."""

    source: SourceRow

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return {"use": None, "row": self.source.row_id + 1, **_describe_source(self.source)}


def build_previews(
    data: PreparedData,
    row_ids: Sequence[int],
    config: RunConfig,
    tokenizer: PreTrainedTokenizerBase,
    preparation: Preparation,
) -> list[Preview | DroppedPreview]:
    """Return everything that the model sees of some source rows; a packed row that holds two of them comes once.

    Args:
        data: Of the run.
        row_ids: Source rows, see `choose_rows`.
        config: Of the run.
        tokenizer: Turns ids back into text.
        preparation: That made the data.
    """
    rows = [(use, place, samples) for use, dataset in _datasets(data) for place, samples in _find(dataset, row_ids)]
    seen = {example["row_id"] for _, _, samples in rows for example in _as_list(samples)}
    sources = read_source_rows(data, {*row_ids, *seen}, config, preparation)
    previews: list[Preview | DroppedPreview] = [
        DroppedPreview(sources[row_id]) for row_id in row_ids if row_id not in seen and row_id in sources
    ]
    for use, place, samples in rows:
        shown = tuple(
            build_sample(example, tokenizer, sources.get(example["row_id"]), config.objective.stage)
            for example in _as_list(samples)
        )
        previews.append(Preview(shown, use, place + 1, isinstance(samples, list)))
    return previews


def build_stream_previews(
    stream: StreamSource, count: int, config: RunConfig, tokenizer: PreTrainedTokenizerBase
) -> list[Preview]:
    """Return the first rows that a run reads which streams, in the order of training."""
    return [
        Preview(
            tuple(
                build_sample(example, tokenizer, read_streamed_row(stream, example["row_id"]), config.objective.stage)
                for example in _as_list(item)
            ),
            "train",
            place,
            isinstance(item, list),
        )
        for place, item in enumerate(stream.peek(count), start=1)
    ]


def build_sample(
    example: Example, tokenizer: PreTrainedTokenizerBase, source: SourceRow | None, stage: str
) -> PreviewedSample:
    """Return a sample with its tokens in runs of learnt and not learnt ones."""
    return PreviewedSample(example["row_id"], tuple(_token_runs(example, tokenizer, stage)), source)


def _token_runs(example: Example, tokenizer: PreTrainedTokenizerBase, stage: str) -> Iterator[TokenRun]:
    ids = example["input_ids"].tolist()
    is_trained = np.zeros(len(ids), dtype=bool)
    for start, end in example["trained_spans"].reshape(-1, 2).tolist():
        is_trained[max(start, 1) : end] = True  # the first token of a sample is never a target
    parts = _parts(example, stage)
    changes = {*(np.flatnonzero(np.diff(is_trained)) + 1).tolist(), *parts}
    borders = sorted({0, *changes, len(ids)})
    before, part = "", ""
    for start, end in pairwise(borders):
        # All of the text up to here: some tokenizers decode a piece differently by itself, without its first space.
        text = str(tokenizer.decode(ids[:end], skip_special_tokens=False, clean_up_tokenization_spaces=False))
        part = parts.get(start, part)
        yield TokenRun(text[len(before) :], tuple(ids[start:end]), bool(is_trained[start]), part)
        before = text


def _parts(example: Example, stage: str) -> dict[int, str]:
    """Return where the parts of a row with two completions begin; nothing for other rows."""
    if "chosen_end" not in example:
        return {}
    pair = cast("PairExample", example)
    names = ("completion", "completion of another row") if stage == "kto" else ("chosen", "rejected")
    return {0: "prompt", pair["prompt_end"]: names[0], pair["chosen_end"]: names[1]}


def _describe_run(run: TokenRun) -> dict[str, Any]:
    described: dict[str, Any] = {"trained": run.is_trained, "text": run.text, "ids": list(run.ids)}
    return {**described, "part": run.part} if run.part else described


def _datasets(data: PreparedData) -> Iterator[tuple[str, TrainableDataset]]:
    if data.train is not None:
        yield "train", data.train
    for dataset in data.evals.values():
        yield "evaluate", dataset


def _find(dataset: TrainableDataset, row_ids: Sequence[int]) -> Iterator[tuple[int, Example | list[Example]]]:
    """Yield the rows of a data set that hold something of the source rows, with their places."""
    packs = dataset.packs if isinstance(dataset, PackedDataset) else None
    numbers = np.flatnonzero(np.isin(find_examples(dataset).row_ids, row_ids))
    if packs is not None:
        pieces = np.flatnonzero(np.isin(packs.rows, numbers))
        numbers = np.unique(np.searchsorted(packs.borders, pieces, side="right") - 1)
    for number in numbers.tolist():
        yield number, dataset[number]


def _as_list(samples: Example | list[Example]) -> list[Example]:
    return samples if isinstance(samples, list) else [samples]


def _describe_source(source: SourceRow | None) -> Mapping[str, Any]:
    if source is None:
        return {}
    described: dict[str, Any] = {
        "data_set": source.data_set,
        "file": source.file,
        "place": source.place,
        "raw": source.values,
    }
    return described if source.dropped is None else {**described, "dropped": source.dropped}
