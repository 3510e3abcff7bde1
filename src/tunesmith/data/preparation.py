"""Data sets to encoded rows, one after the other, by way of the cache."""

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from tunesmith.config import RunConfig
from tunesmith.config.catalogue import MARK_COLUMNS
from tunesmith.config.objective import PAIR_STAGES
from tunesmith.data.account import Tally, describe_dropped
from tunesmith.data.chat import ChatTemplate
from tunesmith.data.encoding import ChunkEncoder
from tunesmith.data.fingerprint import content_key, tokenizer_fingerprint
from tunesmith.data.formats.bad_rows import check_counted
from tunesmith.data.loading.cache import RowCache, find_default_cache_dir, resolve_cache_dir
from tunesmith.data.loading.encoded import EncodedChunk, EncodedRows, EncodedRowsWriter
from tunesmith.data.prepared import PreparedSet
from tunesmith.data.progress import RowProgress
from tunesmith.data.requested import resolve_requested
from tunesmith.data.selection import RawChunk, select_chunks
from tunesmith.data.sources import DatasetSpec
from tunesmith.data.tokenization import EncodingOptions, build_encoder
from tunesmith.data.tokenization.completions import SAME, SAME_CUT
from tunesmith.data.tokenization.truncation import TOO_LONG
from tunesmith.data.worker_choice import over_helpful_workers
from tunesmith.data.workers import over_workers
from tunesmith.errors import DataError
from tunesmith.runtime.ranks import Ranks

logger = logging.getLogger(__name__)

_STAGES_OF_COLUMNS = {
    "chosen": PAIR_STAGES,
    "rejected": PAIR_STAGES,
    "margin": PAIR_STAGES,
    "kto_tag": ("kto",),
    **dict.fromkeys(MARK_COLUMNS, ("sft", "kto")),
}
"""Columns that only some stages read."""

_BYTES_PER_SOURCE_BYTE = 1.1


def select_run_chunks(config: RunConfig, spec: DatasetSpec) -> Iterator[RawChunk]:
    """Read the rows of a data set that a run uses, numbered as in its encoded rows."""
    return select_chunks(spec, config.loading.preprocessing_batch_size, seed=config.training.seed)


class Preparation:
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
            packing=config.packs,
        )
        folder = config.loading.tokenized_path or config.loading.dataset_cache_dir
        # What was prepared before lies in the usual folder; a faster one gets a copy.
        origin = find_default_cache_dir() if folder else None
        self.cache = RowCache(resolve_cache_dir(folder), ranks, origin=origin)

    def prepare_sets(self) -> tuple[PreparedSet, ...]:
        """Encode every data set that the run names, or take it from the cache."""
        requested = resolve_requested(self.config)
        trained = () if self.config.data.streaming else requested.trained
        specs = [("train", spec) for spec in trained] + [("eval", spec) for spec in requested.measured]
        digest = tokenizer_fingerprint(self.tokenizer)
        sets: list[PreparedSet] = []
        first_row_id = 0
        for role, spec in specs:
            rows = self._encoded(spec, digest)
            tally = Tally(**rows.metadata["tally"])
            check_counted(tally.dropped, tally.shown, spec)
            _check_usable(spec, self.config.objective.stage, tally)
            sets.append(PreparedSet(spec, role, rows, tally, first_row_id))
            first_row_id += tally.read
        return tuple(sets)

    def chunk_encoder(self, spec: DatasetSpec) -> ChunkEncoder:
        """Return what turns rows of a data set into encoded ones."""
        encoder = build_encoder(self.tokenizer, self.template, self.options)
        return ChunkEncoder(spec, self.config.objective.stage, encoder)

    def _encoded(self, spec: DatasetSpec, tokenizer_digest: str) -> EncodedRows:
        key = content_key(
            spec,
            tokenizer_digest,
            template_fingerprint=None if self.template is None else self.template.fingerprint,
            options=asdict(self.options),
            selection={"seed": None if spec.num_samples is None else self.config.training.seed},
        )
        encoder = self.chunk_encoder(spec)
        begin = time.monotonic()
        is_new = False

        def write(writer: EncodedRowsWriter) -> dict[str, Any]:
            nonlocal is_new
            is_new = True
            return {"tally": self._write(writer, spec, encoder).to_dict()}

        overwrite = self.config.loading.overwrite_cache
        rows = self.cache.obtain(key, write, overwrite=overwrite, expected_bytes=_expected_bytes(spec))
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
        with RowProgress(spec, max_rows=spec.max_rows, shown=self.ranks.is_local_main) as progress:
            for chunk, tally in self._encode(self._read(spec, progress), encoder, progress):
                writer.write(chunk)
                total.add(tally)
                progress.advance(tally.read)
        total.check(spec.name)
        return total

    def _read(self, spec: DatasetSpec, progress: RowProgress) -> Iterator[RawChunk]:
        for number, chunk in enumerate(select_run_chunks(self.config, spec)):
            if number == 0:
                progress.expect(chunk.rows)
            yield chunk

    def _encode(
        self, chunks: Iterator[RawChunk], encoder: ChunkEncoder, progress: RowProgress
    ) -> Iterator[tuple[EncodedChunk, Tally]]:
        workers = self.config.loading.preprocessing_num_workers
        if workers is None:
            return over_helpful_workers(
                chunks, encoder, count_rows=lambda chunk: len(chunk.rows), rows_left=lambda: progress.rows_left
            )
        return map(encoder, chunks) if workers == 1 else over_workers(chunks, encoder, workers)


def check_has_rows(spec: DatasetSpec, has_rows: bool) -> None:
    """Refuse a data set without rows.

    Raises:
        DataError: It has none; the message names its files.
    """
    if not has_rows:
        raise DataError(
            f"data set {spec.name!r} has no rows: {', '.join(map(str, spec.files))}. Give it some, or leave it out."
        )


def _check_usable(spec: DatasetSpec, stage: str, tally: Tally) -> None:
    check_has_rows(spec, bool(tally.read))
    if not tally.used:
        columns = json.dumps(_columns(spec, stage), ensure_ascii=False)
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
    if reason == SAME.reason:
        return (
            "A pair teaches by its difference: take rows whose completions differ, or check which columns they are in."
        )
    if reason == SAME_CUT.reason:
        return "Raise cutoff_len, so that what the completions differ in is not cut off."
    if reason.startswith("the chat template"):
        return "Choose another template, or leave out what this one cannot print."
    return "Set formatting and columns of the data set in dataset_info to what its rows hold, or choose another stage."


def _columns(spec: DatasetSpec, stage: str) -> dict[str, str]:
    """Return the columns that rows may have, without those that only other stages read."""
    return {
        key: column
        for key, column in asdict(spec.columns).items()
        if column is not None and stage in _STAGES_OF_COLUMNS.get(key, (stage,))
    }


def _expected_bytes(spec: DatasetSpec) -> int:
    """Return about how much the prepared rows of local files take: 4 bytes for a token, which stands for 4 of text."""
    size = sum(file.stat().st_size for file in spec.files if isinstance(file, Path) and file.is_file())
    return round(_BYTES_PER_SOURCE_BYTE * size)
