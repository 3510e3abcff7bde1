"""Rows for which a run stops: those that are not what their data set says, unless they are to be skipped."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
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


def find_bad(dropped: Mapping[str, int], spec: DatasetSpec) -> dict[str, int]:
    """Return, of the reasons for which rows were dropped, those for which a run stops, with their counts."""
    return {reason: count for reason, count in dropped.items() if is_bad(reason, spec)}


def check_counted(dropped: Mapping[str, int], shown: Mapping[str, Sequence[str]], spec: DatasetSpec) -> None:
    """Make sure that no row was counted that the run stops for.

    Rows are encoded once for runs that skip such rows and for those that do not; see `check_no_bad_rows`.

    Args:
        dropped: Rows by the reason for which they cannot be used.
        shown: The first rows of each reason, in words.
        spec: The data set.

    Raises:
        DataError: There are some; the message counts all of them and names the first of each reason.
    """
    bad = find_bad(dropped, spec)
    if bad:
        lines = [f"{reason}, {_rows(count)}: {'; '.join(shown.get(reason, ()))}" for reason, count in bad.items()]
        raise _stop(spec, lines, bad, _rows(sum(bad.values())))


def check_no_bad_rows(rows: Iterable[BadRow], spec: DatasetSpec) -> None:
    """Raise if there is any, with the first three; no more are asked for.

    Raises:
        DataError: The message names file, row, field, what is expected and what is there.
    """
    first = list(islice(rows, _SHOWN))
    if first:
        raise _stop(spec, [f"{row.reason}: {row.shown}" for row in first], {row.reason for row in first}, "rows")


def render_remedies(reasons: Collection[str], spec: DatasetSpec) -> str:
    """Return which settings let a run go on without the rows that were dropped for some reasons, or with them."""
    remedies = []
    if not BAD_ROWS.isdisjoint(reasons):
        remedies.append("`bad_rows: skip` leaves such rows out and counts them")
    if "wrong type" in reasons and not spec.stringify_values:
        remedies.append("`stringify_values: true` takes numbers, lists and objects as text")
    if not DISORDER.isdisjoint(reasons):
        remedies.append("`turn_order_policy: merge` or `skip` goes on without them")
    return "; ".join(remedies)


def _stop(spec: DatasetSpec, lines: Sequence[str], reasons: Collection[str], what: str) -> DataError:
    folders = ", ".join(dict.fromkeys(str(file.parent) for file in spec.files))
    shown = "".join(f"\n  {line}" for line in lines)
    return DataError(
        f"data set {spec.name!r} has {what} that are not as they should be, read as format {spec.formatting} from "
        f"{folders}:{shown}\nCorrect them, or the columns and tags of the data set; {render_remedies(reasons, spec)}."
    )


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
