"""Rows for which a run stops: those that are not what their data set says, unless they are to be skipped."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tunesmith.data.formats.fields import BAD_ROWS
from tunesmith.data.formats.turns import DISORDER
from tunesmith.data.sources import DatasetSpec
from tunesmith.errors import DataError

_SHOWN = 3


class BadRow(NamedTuple):
    """A row and what is wrong with it."""

    reason: str
    shown: str
    """Where it stands and what exactly is there, in words."""


def is_bad(reason: str, spec: DatasetSpec) -> bool:
    """Return whether a run stops for a row that it cannot use, rather than counting it."""
    if reason in DISORDER:
        return spec.turn_order_policy == "error"
    return spec.bad_rows == "error" and reason in BAD_ROWS


def check_counted(shown: Mapping[str, Sequence[str]], spec: DatasetSpec) -> None:
    """Make sure that no row was counted that the run stops for.

    Rows are encoded once for runs that skip such rows and for those that do not; see `check_no_bad_rows`.

    Args:
        shown: The first rows by the reason for which they cannot be used.
        spec: The data set.
    """
    rows = [BadRow(reason, row) for reason, some in shown.items() if is_bad(reason, spec) for row in some]
    check_no_bad_rows(rows, spec)


def check_no_bad_rows(rows: Sequence[BadRow], spec: DatasetSpec) -> None:
    """Raise if there is any, with the first three.

    Raises:
        DataError: The message names file, row, field, what is expected and what is there.
    """
    if not rows:
        return
    shown = "".join(f"\n  {row.reason}: {row.shown}" for row in rows[:_SHOWN])
    folders = ", ".join(dict.fromkeys(str(file.parent) for file in spec.files))
    reasons = {row.reason for row in rows}
    remedies = []
    if reasons & BAD_ROWS:
        remedies.append("`bad_rows: skip` leaves such rows out and counts them")
    if "wrong type" in reasons and not spec.stringify_values:
        remedies.append("`stringify_values: true` takes numbers, lists and objects as text")
    if reasons & DISORDER:
        remedies.append("`turn_order_policy: merge` or `skip` goes on without them")
    raise DataError(
        f"data set {spec.name!r} has rows that are not as they should be, read as format {spec.formatting} from "
        f"{folders}:{shown}\nCorrect them, or the columns and tags of the data set; {'; '.join(remedies)}."
    )
