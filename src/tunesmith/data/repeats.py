"""Refuses data sets that would give one row twice, since it could land on both sides of `val_size`."""

import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from tunesmith.data.sources import DatasetSpec
from tunesmith.errors import DataError

_REMEDY = (
    "which could put one row on both sides of val_size. Name each once; to see its rows more often, give it a larger "
    "num_samples in dataset_info."
)


def check_named_once(specs: Sequence[DatasetSpec], setting: str, *, val_size: float = 0.0) -> None:
    """Refuse a data set that is named twice, also under two names.

    Rows of one file may be used twice when they are read differently (other columns, say) and none is held back.

    Args:
        specs: The data sets that the setting names.
        setting: `dataset` or `eval_dataset`, for messages.
        val_size: As in the configuration; 0 when no rows of these data sets are held back.

    Raises:
        DataError: Two of them share rows.
    """
    names = [spec.name for spec in specs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{setting} names {', '.join(twice)} more than once, {_REMEDY}")
    for first, second in combinations(specs, 2):
        shared = _find_shared_file(first, second)
        if shared is not None and (val_size or _reading(first) == _reading(second)):
            raise DataError(f"{setting} names {first.name} and {second.name}, and both read {shared}, {_REMEDY}")


def _find_shared_file(first: DatasetSpec, second: DatasetSpec) -> Path | None:
    """Return a file that both take rows from; nothing where `split` gives each its own part of the same files."""
    files, others = ([path.resolve() for path in spec.files] for spec in (first, second))
    if files == others:
        start = max(first.first_row, second.first_row)
        end = min(sys.maxsize if spec.last_row is None else spec.last_row for spec in (first, second))
        return files[0] if start < end else None
    return next((path for path in files if path in others), None)


def _reading(spec: DatasetSpec) -> tuple[object, ...]:
    """Return what decides how a row becomes a conversation or text."""
    return spec.formatting, spec.columns, spec.tags
