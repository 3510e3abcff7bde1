"""From the catalogue to data sets that are ready to train on, in order."""

import json
import logging
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from tunesmith.config import RunConfig
from tunesmith.data.account import DataReport, PackingReport, Tally, build_set_report, describe_dropped
from tunesmith.data.chat import ChatTemplate
from tunesmith.data.encoding import ChunkEncoder
from tunesmith.data.fingerprint import content_key, tokenizer_fingerprint
from tunesmith.data.loading.cache import RowCache, default_cache_dir
from tunesmith.data.loading.datasets import ExampleDataset, PackedDataset, Part
from tunesmith.data.loading.encoded import EncodedChunk, EncodedRows, EncodedRowsWriter
from tunesmith.data.packing import Packs, best_fit_decreasing, concatenate_and_cut
from tunesmith.data.progress import RowProgress
from tunesmith.data.repeats import check_named_once
from tunesmith.data.selection import RawChunk, select_chunks
from tunesmith.data.sources import DatasetSpec, load_catalog
from tunesmith.data.splits import hold_back
from tunesmith.data.tokenization import EncodingOptions, build_encoder
from tunesmith.data.tokenization.truncation import TOO_LONG
from tunesmith.data.workers import over_workers
from tunesmith.errors import DataError
from tunesmith.runtime.ranks import Ranks

logger = logging.getLogger(__name__)

TrainableDataset = ExampleDataset | PackedDataset

EVAL_NAME = "validation"
"""Key of the rows to evaluate on, whether held back or named."""


@dataclass(frozen=True, slots=True)
class PreparedSet:
    """One data set, encoded."""

    spec: DatasetSpec
    role: str
    rows: EncodedRows
    tally: Tally
    first_row_id: int
    """`row_id` of its first source row; those of all data sets of a run are numbered through."""


@dataclass(frozen=True, slots=True)
class PreparedData:
    """All data of a run."""

    train: TrainableDataset | None
    """Rows to train on; `None` if the run names none."""

    evals: Mapping[str, TrainableDataset]
    """Rows to evaluate on, by name; empty if the run names none."""

    report: DataReport
    sets: tuple[PreparedSet, ...]

    def describe_row(self, row_id: int) -> str:
        """Return where a row comes from: `data set identity, file identity.json, row 17` (counted from 1).

        Args:
            row_id: As in an example or in the `row_ids` of a batch.
        """
        number = bisect_right([item.first_row_id for item in self.sets], row_id) - 1
        source = self.sets[number] if number >= 0 else None
        place = source.rows.find_place(row_id - source.first_row_id) if source else None
        if source is None or place is None:
            raise KeyError(f"no example was made of row {row_id}")
        return f"data set {source.spec.name}, file {source.spec.files[place.file]}, row {place.file_row + 1}"


def prepare_data(
    config: RunConfig,
    tokenizer: PreTrainedTokenizerBase,
    template: ChatTemplate | None,
    ranks: Ranks | None = None,
) -> PreparedData:
    """Read, encode, split and pack all data of a run; what was encoded before comes from the cache.

    Every process of a run calls this and gets the same rows in the same order. One of them does the work.

    Args:
        config: The run.
        tokenizer: Turns text into ids.
        template: Renders conversations; not needed for plain text.
        ranks: Place of this process in the run.

    Raises:
        DataError: A data set is unknown, unreadable or of the wrong kind, or leaves nothing to train on.
    """
    preparation = _Preparation(config, tokenizer, template, ranks or Ranks())
    sets = preparation.prepare_sets()
    train = _examples(sets, "train")
    evaluation = _examples(sets, "eval")
    held_back = 0
    if config.data.val_size and train is not None:
        kept, chosen = hold_back(train.row_ids, config.data.val_size, config.training.seed)
        train, evaluation, held_back = train.select(kept), train.select(chosen), len(chosen)
    for role, examples in (("train on", train), ("evaluate on", evaluation)):
        _check_trained(examples, role)
    packed_train = _pack(train, config) if train is not None else None
    evals = {} if evaluation is None else {EVAL_NAME: _pack_for_evaluation(evaluation, config)}
    report = DataReport(
        sets=tuple(
            build_set_report(item.spec.name, item.role, item.tally, item.rows.lengths, item.rows.trained_tokens)
            for item in sets
        ),
        train_examples=0 if train is None else len(train),
        eval_examples=0 if evaluation is None else len(evaluation),
        held_back_examples=held_back,
        packing=_packing_report(packed_train, config.data.cutoff_len),
        max_samples=config.data.max_samples,
    )
    return PreparedData(packed_train, evals, report, sets)


def is_packed(config: RunConfig) -> bool:
    """Return whether rows are packed: as the run says, else yes for plain text and no for conversations."""
    if config.data.packing is None:
        return config.data.neat_packing or config.objective.stage == "pt"
    return config.data.packing


class _Preparation:
    """Encodes the data sets of one run, one after the other."""

    def __init__(
        self,
        config: RunConfig,
        tokenizer: PreTrainedTokenizerBase,
        template: ChatTemplate | None,
        ranks: Ranks,
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.template = template
        self.ranks = ranks
        self.options = EncodingOptions(
            stage=config.objective.stage,
            cutoff_len=config.data.cutoff_len,
            train_on_prompt=config.data.train_on_prompt,
            mask_history=config.data.mask_history,
            packing=is_packed(config),
        )
        folder = config.loading.dataset_cache_dir
        self.cache = RowCache(Path(folder).expanduser() if folder else default_cache_dir(), ranks)

    def prepare_sets(self) -> tuple[PreparedSet, ...]:
        """Encode every data set that the run names, or take it from the cache."""
        data = self.config.data
        catalog = load_catalog(data)
        trained = [catalog.resolve(name) for name in data.dataset]
        measured = [catalog.resolve(name) for name in data.eval_dataset]
        check_named_once(trained, "dataset", val_size=data.val_size)
        check_named_once(measured, "eval_dataset")
        specs = [("train", spec) for spec in trained] + [("eval", spec) for spec in measured]
        digest = tokenizer_fingerprint(self.tokenizer)
        sets: list[PreparedSet] = []
        first_row_id = 0
        for role, spec in specs:
            rows = self._encoded(spec, digest)
            tally = Tally(**rows.metadata["tally"])
            _check_usable(spec, self.config.objective.stage, tally)
            sets.append(PreparedSet(spec, role, rows, tally, first_row_id))
            first_row_id += tally.read
        return tuple(sets)

    def _encoded(self, spec: DatasetSpec, tokenizer_digest: str) -> EncodedRows:
        key = content_key(
            spec,
            tokenizer_digest,
            template_fingerprint=None if self.template is None else self.template.fingerprint,
            options=asdict(self.options),
            selection={
                "max_samples": self.config.data.max_samples,
                "seed": None if spec.num_samples is None else self.config.training.seed,
            },
        )
        encoder = ChunkEncoder(
            spec, self.config.objective.stage, build_encoder(self.tokenizer, self.template, self.options)
        )
        begin = time.monotonic()
        is_new = False

        def write(writer: EncodedRowsWriter) -> dict[str, Any]:
            nonlocal is_new
            is_new = True
            return {"tally": self._write(writer, spec, encoder).to_dict()}

        rows = self.cache.obtain(key, write, overwrite=self.config.loading.overwrite_cache)
        if is_new:
            seconds = max(time.monotonic() - begin, 1e-9)
            read = rows.metadata["tally"]["read"]
            logger.info(
                "Data set %s: %s rows prepared in %.1f s (%s rows/s).",
                spec.name,
                f"{read:,}",
                seconds,
                f"{read / seconds:,.0f}",
            )
        else:
            logger.info("Data set %s: %s rows taken from the cache (%s).", spec.name, f"{len(rows):,}", rows.path)
        return rows

    def _write(self, writer: EncodedRowsWriter, spec: DatasetSpec, encoder: ChunkEncoder) -> Tally:
        total = Tally()
        limit = self.config.data.max_samples
        with RowProgress(spec, max_rows=limit, shown=self.ranks.is_local_main) as progress:
            for chunk, tally in self._encode(self._read(spec, progress), encoder):
                writer.write(chunk)
                total.add(tally)
                progress.advance(tally.read)
        total.check(spec.name)
        return total

    def _read(self, spec: DatasetSpec, progress: RowProgress) -> Iterator[RawChunk]:
        chunks = select_chunks(
            spec,
            self.config.loading.preprocessing_batch_size,
            max_rows=self.config.data.max_samples,
            seed=self.config.training.seed,
        )
        for number, chunk in enumerate(chunks):
            if number == 0:
                progress.expect(chunk.rows)
            yield chunk

    def _encode(self, chunks: Iterator[RawChunk], encoder: ChunkEncoder) -> Iterator[tuple[EncodedChunk, Tally]]:
        workers = self.config.loading.preprocessing_num_workers or 1
        return map(encoder, chunks) if workers == 1 else over_workers(chunks, encoder, workers)


def _examples(sets: Sequence[PreparedSet], role: str) -> ExampleDataset | None:
    parts = [Part(item.rows, item.first_row_id) for item in sets if item.role == role]
    return ExampleDataset(parts) if parts else None


def _pack(examples: ExampleDataset, config: RunConfig) -> TrainableDataset:
    if not is_packed(config):
        return examples
    if config.objective.stage == "pt":
        return PackedDataset(examples, concatenate_and_cut(examples.lengths, config.data.cutoff_len))
    lengths = examples.lengths
    packs = best_fit_decreasing(lengths, config.data.cutoff_len)
    return PackedDataset(examples, Packs.of_whole_rows(packs, lengths))


def _pack_for_evaluation(examples: ExampleDataset, config: RunConfig) -> TrainableDataset:
    """Documents are cut to blocks; conversations stay single, since predictions are made for each."""
    return _pack(examples, config) if config.objective.stage == "pt" else examples


def _packing_report(dataset: TrainableDataset | None, capacity: int) -> PackingReport | None:
    if not isinstance(dataset, PackedDataset):
        return None
    return PackingReport(
        packs=len(dataset), capacity=capacity, tokens=int(dataset.lengths.sum()), samples=len(dataset.packs.rows)
    )


def _check_usable(spec: DatasetSpec, stage: str, tally: Tally) -> None:
    if not tally.read:
        raise DataError(f"data set {spec.name!r} has no rows: {', '.join(map(str, spec.files))}")
    if not tally.used:
        columns = json.dumps(_columns(spec), ensure_ascii=False)
        raise DataError(
            f"data set {spec.name!r} has no row that stage {stage} could use. It is read as format {spec.formatting} "
            f"with the columns {columns}. All {tally.read:,} rows were dropped:\n{describe_dropped(tally)}\n"
            f"{_remedy(tally)}"
        )


def _remedy(tally: Tally) -> str:
    """Return what to do about the reason for which most rows were dropped."""
    reason = max(tally.dropped, key=lambda name: tally.dropped[name])
    if reason == TOO_LONG.reason:
        return "Raise cutoff_len, or shorten the system message."
    if reason.startswith("the chat template"):
        return "Choose another template, or leave out what this one cannot print."
    return "Set formatting and columns of the data set in dataset_info to what its rows hold, or choose another stage."


def _columns(spec: DatasetSpec) -> dict[str, str]:
    return {key: column for key, column in asdict(spec.columns).items() if column is not None}


def _check_trained(examples: ExampleDataset | None, purpose: str) -> None:
    if examples is not None and not np.any(examples.trained_tokens):
        raise DataError(
            f"Not one token to {purpose} is left of {len(examples):,} rows: all answers are empty or were cut away. "
            "Raise cutoff_len, or give the rows answers."
        )
