"""Whether a data set is of the kind that a stage learns from, judged by its first rows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from tunesmith.data.formats.registry import build_format
from tunesmith.data.sources import DatasetSpec, RawRow, peek_rows
from tunesmith.data.sources.column_names import find_near_name, render_names
from tunesmith.errors import DataError

_LOOKED_AT = 1000
"""Rows that are read to see whether any has a column."""

_PAIR_COLUMNS = ("chosen", "rejected")
_LEARNT = {"pt": "text", "sft": "answers", "kto": "rated answers"}
"""What a stage learns from; those that are not here learn from pairs of answers."""


def check_kind(spec: DatasetSpec, stage: str, *, needs_declared: bool = True) -> None:
    """Make sure that the rows of a data set have what a stage learns from, before any of them is tokenised.

    Args:
        spec: The data set.
        stage: What it is read for.
        needs_declared: Whether columns that somebody wrote down have to be there, too.

    Raises:
        DataError: A column is in none of the first rows, or the format has nothing for the stage. The message names
            data set, stage and what is missing.
    """
    if spec.formatting == "text" and stage != "pt":
        raise DataError(
            f"data set {spec.name!r} holds plain text (format text{_because(spec)}), and stage {stage} learns from "
            f"{_learnt(stage)}: there is no column for an answer. Set formatting and columns of the data set to what "
            "its rows hold, or choose stage pt."
        )
    build_format(spec, stage)
    rows = peek_rows(spec.files, _LOOKED_AT)
    if not rows:
        return  # refused when it is read, with words of its own
    for key, column in _needed(spec, stage).items():
        if not _is_there(column, rows):
            raise DataError(
                f"data set {spec.name!r} is not of the kind that stage {stage} learns from "
                f"({_learnt(stage)}): {_describe(key, column, rows)}. It is read as format "
                f"{spec.formatting}{_because(spec)}. Set formatting and columns of the data set in dataset_info to "
                "what its rows hold, or choose another stage."
            )
    if needs_declared:
        _check_declared(spec, rows)


def _needed(spec: DatasetSpec, stage: str) -> Mapping[str, str | None]:
    """Return the columns that rows need, by what they hold."""
    columns = asdict(spec.columns)
    if stage == "pt":
        keys: tuple[str, ...] = ("prompt",)
    elif stage in ("sft", "kto"):
        keys = ("response",) if spec.formatting == "alpaca" else ("messages",)
        keys = (*keys, "kto_tag") if stage == "kto" else keys
    else:
        keys = _PAIR_COLUMNS
    return {key: columns.get(key) for key in keys}


def _check_declared(spec: DatasetSpec, rows: Sequence[RawRow]) -> None:
    names = {column: key for key, column in asdict(spec.columns).items() if column}
    for column in spec.declared:
        if not _is_there(column, rows):
            raise DataError(
                f"data set {spec.name!r}: {_describe(names.get(column, 'columns'), column, rows)}. Correct or remove "
                "the column in its entry, or set `bad_rows: skip` if only later rows have it."
            )


def _is_there(column: str | None, rows: Sequence[RawRow]) -> bool:
    return column is not None and any(column in row.values for row in rows)


def _describe(key: str, column: str | None, rows: Sequence[RawRow]) -> str:
    """Return file, row, field, what is expected and what is there."""
    first = rows[0]
    present = render_names(first.values) or "no columns"
    if column is None:
        return f"no column is set for {key}, and {first.file} row {first.row + 1} has {present}"
    where = f"the first {len(rows):,} rows" if len(rows) == _LOOKED_AT else "its rows"
    expected = f"expected the column {column!r} ({key})"
    near = find_near_name(column, first.values)
    hint = "" if near is None else f" (did you mean {near!r}? then write `columns: {{{key}: {near!r}}}`)"
    return f"{first.file} row {first.row + 1}: {expected}, found {present}; none of {where} has it{hint}"


def _learnt(stage: str) -> str:
    return _LEARNT.get(stage, "pairs of answers")


def _because(spec: DatasetSpec) -> str:
    reason = next((note for note in spec.notes if note.startswith("format ")), None)
    return "" if reason is None else f", {reason.partition(', ')[2]}"
