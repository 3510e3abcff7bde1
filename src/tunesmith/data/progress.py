"""How far the work on rows is: a bar with speed and time left on a terminal, a line now and then elsewhere."""

import json
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow.parquet as pq
from tqdm import tqdm

from tunesmith.data.sources import DatasetSpec, RawRow
from tunesmith.data.sources.compression import is_compressed

logger = logging.getLogger(__name__)

_LINE_EVERY_SECONDS = 30.0
"""Without a terminal: often enough to see that something happens, seldom enough for a log file."""


class RowProgress:
    """Shows how far the preparation, or another use, of a data set is; silent where `shown` is false.

    Args:
        spec: The data set.
        max_rows: Rows that will be read at most.
        shown: False in processes that do not talk to the user.
        verb: What is done with the rows, for the line that is shown.
        is_terminal: Whether a bar can be drawn; found out when not given.
    """

    def __init__(
        self,
        spec: DatasetSpec,
        *,
        max_rows: int | None,
        shown: bool,
        verb: str = "Preparing",
        is_terminal: bool | None = None,
    ) -> None:
        self._spec = spec
        self._max_rows = max_rows
        self._estimate: int | None = None
        self._done = 0
        self._title = f"{verb} {spec.name}"
        is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._bar: Any = tqdm(desc=self._title, unit=" rows", disable=not (shown and is_terminal), smoothing=0.1)
        self._writes_lines = shown and not is_terminal
        self._line_due = time.monotonic() + _LINE_EVERY_SECONDS

    def expect(self, sample: Sequence[RawRow]) -> None:
        """Estimate the number of all rows from the first ones, for the time left."""
        self._estimate = estimate_rows(self._spec, sample, self._max_rows)
        if not self._bar.disable:
            self._bar.total = self._estimate
            self._bar.refresh()

    def advance(self, num_rows: int) -> None:
        """Count rows as done."""
        self._done += num_rows
        self._bar.update(num_rows)
        if self._writes_lines and time.monotonic() >= self._line_due:
            self._line_due = time.monotonic() + _LINE_EVERY_SECONDS
            of_all = "" if self._estimate is None else f" of about {self._estimate:,}"
            logger.info("%s: %s%s rows", self._title, f"{self._done:,}", of_all)

    @property
    def rows_left(self) -> int | None:
        """About how many rows are to come; `None` where there is no telling."""
        return None if self._estimate is None else max(0, self._estimate - self._done)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._bar.disable:
            self._bar.total = self._bar.n  # the estimate has done its work
            self._bar.refresh()
        self._bar.close()


def estimate_rows(spec: DatasetSpec, sample: Sequence[RawRow], max_rows: int | None) -> int | None:
    """Return about how many rows will be read, or `None` where there is no telling.

    Parquet files say it; for text the size of the files is divided by the size of a few rows.
    """
    if spec.num_samples is not None:
        total: int | None = spec.num_samples
    else:
        counts = [_rows_in(path, sample) for path in spec.files]
        total = None if None in counts else sum(count for count in counts if count is not None)
        if total is not None:
            last = total if spec.last_row is None else min(total, spec.last_row)
            total = max(0, last - spec.first_row)
    known = [number for number in (total, max_rows) if number is not None]
    return min(known) if known else None


def _rows_in(path: Path, sample: Sequence[RawRow]) -> int | None:
    if path.suffix.lower() == ".parquet":
        with path.open("rb") as file:
            return int(pq.read_metadata(file).num_rows)
    if path.suffix.lower() == ".arrow" or is_compressed(path) or not sample:
        return None
    rows = [json.dumps(row.values, ensure_ascii=False, default=str) for row in sample[:200]]
    return round(path.stat().st_size * len(rows) / sum(len(row.encode(errors="surrogatepass")) for row in rows))
