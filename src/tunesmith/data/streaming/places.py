"""Where a streamed row stands, as one number: the file in the upper bits, the place in it in the lower ones."""

from tunesmith.data.sources import RawRow
from tunesmith.data.streaming.cursors import describe_place
from tunesmith.data.streaming.shards import find_unit

_PLACE_BITS = 44
"""Room for a file of 16 TiB, and for half a million files."""


FIRST_FILE = 1
"""Number of the first file, so that streamed rows have other ids than rows that were prepared beforehand."""


def is_streamed(row_id: int) -> bool:
    """Return whether an id is one of a streamed row."""
    return row_id >= FIRST_FILE << _PLACE_BITS


def build_row_id(file_number: int, place: int) -> int:
    """Return the row id of a place in a file."""
    return file_number << _PLACE_BITS | place


def split_row_id(row_id: int) -> tuple[int, int]:
    """Return number of the file and place in it."""
    return row_id >> _PLACE_BITS, row_id & ((1 << _PLACE_BITS) - 1)


def render_streamed_place(row: RawRow, *, is_exact: bool = False) -> str:
    """Return where a row of a stream stands, in words; lines are counted only where it must be `is_exact`."""
    unit = find_unit(row.file)
    is_bytes = unit not in ("groups", "rows") and not is_exact
    return f"{row.file.name} {f'byte {row.row:,}' if is_bytes else describe_place(row.file, unit, row.row)}"
