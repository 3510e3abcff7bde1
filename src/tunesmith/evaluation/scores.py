"""Scores of a reward model for the rows of a file: conversations, plain texts, or pairs of completions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tunesmith.config import RunConfig
from tunesmith.config.objective import PAIR_STAGES
from tunesmith.data.batches import PairExample
from tunesmith.data.collators.completions import split_pair
from tunesmith.data.formats.fields import MALFORMED
from tunesmith.data.formats.registry import build_format, convert_raw
from tunesmith.data.preparation import check_has_rows
from tunesmith.data.progress import RowProgress
from tunesmith.data.records import Dropped, Record
from tunesmith.data.selection import select_chunks
from tunesmith.data.sources import DatasetSpec, RawRow, load_catalog
from tunesmith.data.sources.rows import peek_rows
from tunesmith.data.tokenization import EncodedRow, EncodingOptions, build_encoder
from tunesmith.errors import DataError
from tunesmith.inference.reward import RewardScorer, TokenIds

_DECIMALS = 6
_TEXT = "text"


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """What a row of the file got."""

    row: int
    """Its number, from 0, in the order of reading."""

    scores: Mapping[str, float]
    """`score`, or `chosen` and `rejected`; nothing for a row that could not be used."""

    dropped: str = ""
    """Why there is no score."""

    is_cut: bool = False
    """Whether it was longer than `cutoff_len`, so that less than the whole of it was rated."""

    def to_dict(self) -> dict[str, Any]:
        """Return the line that is written."""
        line: dict[str, Any] = {"row": self.row}
        line |= {name: round(value, _DECIMALS) for name, value in self.scores.items()}
        if self.dropped:
            line["dropped"] = self.dropped
        if self.is_cut:
            line["cut"] = True
        return line


def resolve_score_rows(config: RunConfig, name: str) -> DatasetSpec:
    """Find the rows to rate.

    Args:
        config: Its catalogue is looked into, too.
        name: A file or folder, or a data set of the catalogue.

    Raises:
        DataError: There is no such thing, it has no rows, or its columns say nothing about its format.
    """
    spec = load_catalog(config.data).resolve(name)
    first = peek_rows(spec.files)
    check_has_rows(spec, bool(first))
    is_pair = bool(first) and {spec.columns.chosen, spec.columns.rejected} <= set(first[0].values)
    return replace(spec, ranking=is_pair or spec.ranking, max_rows=config.data.max_samples_of(0))


def score_rows(
    scorer: RewardScorer, spec: DatasetSpec, config: RunConfig, *, shows_progress: bool = False
) -> Iterator[ScoredRow]:
    """Rate every row of a data set, in its order; a row that cannot be used says why.

    Args:
        scorer: The reward model.
        spec: See `resolve_score_rows`.
        config: `cutoff_len`, `max_samples` and `preprocessing_batch_size` of it are used.
        shows_progress: Draw a line that tells how far it is.

    Raises:
        DataError: The rows are conversations, and the model has no chat template.
    """
    encode = _build_encode(scorer, spec, config)
    chunk_rows = config.loading.preprocessing_batch_size
    with RowProgress(spec, max_rows=spec.max_rows, shown=shows_progress, verb="Scoring") as progress:
        for chunk in select_chunks(spec, chunk_rows, seed=config.training.seed):
            if chunk.first_row == 0:
                progress.expect(chunk.rows)
            yield from _score_chunk(scorer, encode(chunk.rows), chunk.first_row)
            progress.advance(len(chunk.rows))


def _score_chunk(scorer: RewardScorer, outcomes: Sequence[EncodedRow | Dropped], first_row: int) -> Iterator[ScoredRow]:
    texts = [_texts_of(outcome) for outcome in outcomes]
    scores = iter(scorer.score([ids for row in texts for ids in row.values()]))
    for number, (outcome, row) in enumerate(zip(outcomes, texts, strict=True), start=first_row):
        found = {name: next(scores) for name in row}
        if isinstance(outcome, Dropped):
            yield ScoredRow(number, found, dropped=outcome.reason)
        else:
            yield ScoredRow(number, found, is_cut=bool(outcome.truncation))


Encode = Callable[[Sequence[RawRow]], list[EncodedRow | Dropped]]


def _build_encode(scorer: RewardScorer, spec: DatasetSpec, config: RunConfig) -> Encode:
    """Return what turns raw rows into token ids: one row each, also where training would make several."""
    if spec.formatting == _TEXT:
        return lambda rows: [_encode_text(scorer, spec, row, config.data.cutoff_len) for row in rows]
    if scorer.template is None:
        raise DataError(
            f"{spec.name} holds conversations, and the tokenizer of the model has no chat template to write them with. "
            "Set template to the one the model was trained with."
        )
    stage = PAIR_STAGES[0] if spec.ranking else "sft"
    convert = build_format(spec, stage)
    encoder = build_encoder(scorer.tokenizer, scorer.template, EncodingOptions(stage, config.data.cutoff_len))

    def encode(rows: Sequence[RawRow]) -> list[EncodedRow | Dropped]:
        records = [convert_raw(row, convert) for row in rows]
        usable: list[Record] = [record for record in records if not isinstance(record, Dropped)]
        encoded = iter(encoder.encode(usable))
        outcomes = [record if isinstance(record, Dropped) else next(encoded) for record in records]
        # A template that rewrites earlier turns gives a row per answer; the last one holds the whole conversation.
        return [outcome if isinstance(outcome, Dropped) else outcome[-1] for outcome in outcomes]

    return encode


def _encode_text(scorer: RewardScorer, spec: DatasetSpec, row: RawRow, cutoff_len: int) -> EncodedRow | Dropped:
    if row.problem is not None:
        return Dropped(MALFORMED, row.problem)
    text = row.values.get(spec.columns.prompt or _TEXT)
    if not isinstance(text, str) or not text:
        return Dropped("no text", "")
    ids = np.asarray(scorer.tokenizer(text)["input_ids"], dtype=np.int32)
    cut = frozenset({"answer_cut"}) if len(ids) > cutoff_len else frozenset()
    return EncodedRow(ids[:cutoff_len], np.zeros(0, dtype=np.int32), cut)  # type: ignore[arg-type]


def _texts_of(outcome: EncodedRow | Dropped) -> dict[str, TokenIds]:
    """Return the texts of a row that get a score, by the name of the score."""
    if isinstance(outcome, Dropped):
        return {}
    if not outcome.prompt_end:
        # What follows the end marker of the last answer is not part of it: pairs are trained without it, too.
        end = int(outcome.trained_spans[-1]) if len(outcome.trained_spans) else len(outcome.input_ids)
        return {"score": outcome.input_ids[:end]}
    pair = PairExample(
        input_ids=outcome.input_ids,
        trained_spans=outcome.trained_spans,
        row_id=0,
        prompt_end=outcome.prompt_end,
        chosen_end=outcome.chosen_end,
        signal=outcome.signal,
    )
    chosen, rejected = split_pair(pair)
    return {"chosen": chosen["input_ids"], "rejected": rejected["input_ids"]}
