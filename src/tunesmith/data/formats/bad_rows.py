"""Rows for which a run stops: those that are not what their data set says, unless they are to be skipped."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tunesmith.data.formats.fields import BAD_ROWS
from tunesmith.data.formats.turns import DISORDER
from tunesmith.data.records import Dropped
from tunesmith.data.sources import DatasetSpec
from tunesmith.errors import DataError

_SHOWN = 3


class BadRow(NamedTuple):
    """A row and what is wrong with it."""

    place: str
    """Where in its file it stands, in words."""

    file: Path
    dropped: Dropped


def is_bad(dropped: Dropped, spec: DatasetSpec) -> bool:
    """Return whether a run stops for a row that it cannot use, rather than counting it."""
    if dropped.reason in DISORDER:
        return spec.turn_order_policy == "error"
    return spec.bad_rows == "error" and dropped.reason in BAD_ROWS


def check_no_bad_rows(rows: Sequence[BadRow], spec: DatasetSpec) -> None:
    """Raise if there is any, with the first three.

    Raises:
        DataError: The message names file, row, field, what is expected and what is there.
    """
    if not rows:
        return
    shown = "".join(
        f"\n  {row.place}: {row.dropped.reason}{f': {row.dropped.detail}' if row.dropped.detail else ''}"
        for row in rows[:_SHOWN]
    )
    files = ", ".join(dict.fromkeys(str(row.file) for row in rows[:_SHOWN]))
    reasons = {row.dropped.reason for row in rows}
    remedies = []
    if reasons & BAD_ROWS:
        remedies.append("`bad_rows: skip` leaves such rows out and counts them")
    if "wrong type" in reasons and not spec.stringify_values:
        remedies.append("`stringify_values: true` takes numbers, lists and objects as text")
    if reasons & DISORDER:
        remedies.append("`turn_order_policy: merge` or `skip` goes on without them")
    raise DataError(
        f"data set {spec.name!r} has rows that are not as they should be, read as format {spec.formatting} from "
        f"{files}:{shown}\nCorrect them, or the columns and tags of the data set; {'; '.join(remedies)}."
    )
