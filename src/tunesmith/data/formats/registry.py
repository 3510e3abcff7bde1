"""Which formats there are and what each gives to each stage: a new format is one file and one line here."""

from collections.abc import Callable, Mapping
from typing import Any

from tunesmith.config.objective import PAIR_STAGES
from tunesmith.data.formats.alpaca import (
    convert_alpaca,
    convert_alpaca_document,
    convert_alpaca_feedback,
    convert_alpaca_preference,
)
from tunesmith.data.formats.characters import check_characters
from tunesmith.data.formats.fields import MALFORMED, FillText, UnusableRowError, build_fill
from tunesmith.data.formats.openai import convert_openai, convert_openai_feedback, convert_openai_preference
from tunesmith.data.formats.sharegpt import convert_sharegpt, convert_sharegpt_feedback, convert_sharegpt_preference
from tunesmith.data.formats.stringify import stringify_row
from tunesmith.data.formats.text import convert_text
from tunesmith.data.records import Dropped, Record
from tunesmith.data.sources import RawRow
from tunesmith.data.sources.dataset_spec import DatasetSpec
from tunesmith.errors import DataError

Convert = Callable[[Mapping[str, Any], DatasetSpec, FillText], Record]

FORMATS: Mapping[tuple[str, str], Convert] = {
    ("alpaca", "pt"): convert_alpaca_document,
    ("alpaca", "sft"): convert_alpaca,
    ("openai", "sft"): convert_openai,
    ("sharegpt", "sft"): convert_sharegpt,
    ("text", "pt"): convert_text,
    **{("alpaca", stage): convert_alpaca_preference for stage in PAIR_STAGES},
    **{("openai", stage): convert_openai_preference for stage in PAIR_STAGES},
    **{("sharegpt", stage): convert_sharegpt_preference for stage in PAIR_STAGES},
    ("alpaca", "kto"): convert_alpaca_feedback,
    ("openai", "kto"): convert_openai_feedback,
    ("sharegpt", "kto"): convert_sharegpt_feedback,
}
"""Converters by format and stage."""


def build_format(spec: DatasetSpec, stage: str) -> Callable[[Mapping[str, Any]], Record | Dropped]:
    """Return the function that turns a raw row of a data set into a record, or says why it cannot.

    Raises:
        DataError: The format gives nothing that this stage could learn from.
    """
    if spec.ranking and stage not in PAIR_STAGES:
        raise DataError(
            f"data set {spec.name!r} holds rankings (ranking: true), and stage {stage} learns from answers; choose "
            f"stage {' or '.join(PAIR_STAGES)}, or name the column of the answer and take ranking out of dataset_info"
        )
    if spec.ranking is False and stage in PAIR_STAGES:
        raise DataError(
            f"stage {stage} learns from pairs, and data set {spec.name!r} holds none (ranking: false); if its rows "
            "have a chosen and a rejected completion, take that out of dataset_info"
        )
    convert = FORMATS.get((spec.formatting, stage))
    if convert is None:
        stages = [known_stage for formatting, known_stage in FORMATS if formatting == spec.formatting]
        formats = [formatting for formatting, known_stage in FORMATS if known_stage == stage]
        raise DataError(
            f"data set {spec.name!r} is of format {spec.formatting}, which serves stage {', '.join(stages)}; "
            f"stage {stage} takes {' or '.join(formats)}"
        )
    fill = build_fill(spec.row_variables)

    def convert_row(values: Mapping[str, Any]) -> Record | Dropped:
        if spec.stringify_values:
            values = stringify_row(values, spec)
        try:
            record = convert(values, spec, fill)
            check_characters(record)
        except UnusableRowError as unusable:
            return unusable.dropped
        except RecursionError:
            return Dropped("wrong type", "the values are nested too deeply")
        return record

    return convert_row


def convert_raw(row: RawRow, convert: Callable[[Mapping[str, Any]], Record | Dropped]) -> Record | Dropped:
    """Return the record of a row as it came from its file, or why there is none."""
    return convert(row.values) if row.problem is None else Dropped(MALFORMED, row.problem)
