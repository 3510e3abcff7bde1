"""The key `split`: which splits of a data set are read, and which range of their rows."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tunesmith.errors import DataError

_SPLIT = re.compile(r"(?P<names>[\w.-]+(?:\+[\w.-]+)*)(?:\[(?P<first>-?\d+%?)?:(?P<last>-?\d+%?)?\])?")


@dataclass(frozen=True, slots=True)
class Split:
    """One value of `split`, such as `train`, `train+test` or `train[:10%]`."""

    names: tuple[str, ...]
    first: str = ""
    last: str = ""
    """Borders of the range as they were written; empty where the range is open."""

    def resolve(self, count_rows: Callable[[], int]) -> tuple[int, int | None]:
        """Return the half-open range of rows; they are counted only where the borders are shares or negative."""
        borders = [border for border in (self.first, self.last) if border]
        if all(border.isdecimal() for border in borders):
            return int(self.first or 0), int(self.last) if self.last else None
        total = count_rows()
        return _place(self.first or "0", total), _place(self.last or str(total), total)


def parse_split(text: str, where: str) -> Split:
    """Read a value of `split`.

    Raises:
        DataError: It is none.
    """
    match = _SPLIT.fullmatch(text.replace(" ", ""))
    if match is None:
        raise DataError(
            f"{where}: split is {text!r}; allowed is the name of a split, several such as 'train+test', or a range of "
            "rows such as 'train[:1000]' or 'train[10%:]'"
        )
    return Split(tuple(match["names"].split("+")), match["first"] or "", match["last"] or "")


def _place(border: str, total: int) -> int:
    """Return a border as a number of rows; shares are rounded as in the library `datasets`."""
    number = round(total * int(border[:-1]) / 100) if border.endswith("%") else int(border)
    return min(max(number + total if number < 0 else number, 0), total)
