"""Raw rows to encoded rows, a chunk at a time: format, encode, count."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tunesmith.data.account import Tally
from tunesmith.data.formats.bad_rows import BadRow, check_no_bad_rows, is_bad
from tunesmith.data.formats.registry import build_format, convert_raw
from tunesmith.data.loading.encoded import Completions, EncodedChunk, Place, build_chunk
from tunesmith.data.records import Conversation, Dropped, Feedback, Preference, Record
from tunesmith.data.selection import RawChunk
from tunesmith.data.sources import DatasetSpec, RawRow
from tunesmith.data.tokenization import EncodedRow, Encoder


class RenderPlace(Protocol):
    """Says where a row stands; a function of a module."""

    def __call__(self, row: RawRow, *, is_exact: bool = False) -> str:
        """Return file and place; `is_exact` where it may take reading the file up to there."""
        ...


class ChunkEncoder:
    """Encodes chunks of one data set; travels to worker processes.

    Args:
        spec: The data set.
        stage: What it is read for.
        encoder: Makes ids and spans of records.
        render_place: Says where a row stands, for the account.
    """

    def __init__(
        self,
        spec: DatasetSpec,
        stage: str,
        encoder: Encoder,
        render_place: RenderPlace | None = None,
    ) -> None:
        self.spec = spec
        self.stage = stage
        self.encoder = encoder
        self._render_place = render_place or _render_place

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the converter: it is a closure, and is built anew where it is used.
        return ChunkEncoder, (self.spec, self.stage, self.encoder, self._render_place)

    def __call__(self, chunk: RawChunk) -> tuple[EncodedChunk, Tally]:
        """Return the encoded rows of a chunk, in order, and what became of each source row."""
        convert = self._convert
        converted = [convert_raw(row, convert) for row in chunk.rows]
        self._check_no_bad_rows(chunk, converted)
        encoded = iter(self.encoder.encode([record for record in converted if not isinstance(record, Dropped)]))
        outcomes = [record if isinstance(record, Dropped) else next(encoded) for record in converted]
        encoded_chunk, tally = self._collect(chunk, outcomes)
        for row, record, outcome in zip(chunk.rows, converted, outcomes, strict=True):
            if isinstance(outcome, Dropped):
                continue
            if has_empty_answer(record):
                tally.note_empty(self._render_place(row))
            if isinstance(record, Conversation | Preference | Feedback):
                tally.note_repairs(record.repairs)
        return encoded_chunk, tally

    def _render_dropped(self, row: RawRow, dropped: Dropped, *, is_exact: bool = False) -> str:
        place = self._render_place(row, is_exact=is_exact)
        return f"{place}: {dropped.detail}" if dropped.detail else place

    def _check_no_bad_rows(self, chunk: RawChunk, converted: Sequence[Record | Dropped]) -> None:
        bad = (
            BadRow(record.reason, self._render_dropped(row, record, is_exact=True))
            for row, record in zip(chunk.rows, converted, strict=True)
            if isinstance(record, Dropped) and is_bad(record.reason, self.spec)
        )
        check_no_bad_rows(bad, self.spec)

    @cached_property
    def _convert(self) -> Callable[[Mapping[str, Any]], Record | Dropped]:
        return build_format(self.spec, self.stage)

    @cached_property
    def _file_numbers(self) -> dict[Path, int]:
        return {file: number for number, file in enumerate(self.spec.files)}

    def _collect(
        self, chunk: RawChunk, outcomes: Sequence[Sequence[EncodedRow] | Dropped]
    ) -> tuple[EncodedChunk, Tally]:
        tally = Tally(read=len(chunk.rows))
        ids: list[NDArray[np.int32]] = []
        spans: list[NDArray[np.int32]] = []
        places: list[Place] = []
        completions: list[Completions] = []
        for number, (source, outcome) in enumerate(zip(chunk.rows, outcomes, strict=True), start=chunk.first_row):
            if isinstance(outcome, Dropped):
                tally.drop(outcome.reason, self._render_dropped(source, outcome))
                continue
            place = Place(number, self._file_numbers[source.file], source.row)
            for row in outcome:
                ids.append(row.input_ids)
                spans.append(row.trained_spans)
                places.append(place)
                completions.append(Completions(row.prompt_end, row.chosen_end, row.signal))
            tally.use({kind for row in outcome for kind in row.truncation})
        return build_chunk(ids, spans, places, completions), tally


def has_empty_answer(record: Record | Dropped) -> bool:
    """Return whether an answer that is learnt says nothing and calls no tool."""
    match record:
        case Conversation(messages):
            answers = messages
        case Preference(chosen=chosen, rejected=rejected):
            answers = (*chosen, *rejected)
        case Feedback(completion=completion):
            answers = completion
        case _:
            return False
    return any(
        message.role == "assistant"
        and not message.tool_calls
        and message.trained is not False
        and (not message.content or message.content.isspace())
        for message in answers
    )


def _render_place(row: RawRow, *, is_exact: bool = False) -> str:
    del is_exact  # rows are counted anyhow
    return f"{row.file.name} row {row.row + 1}"
