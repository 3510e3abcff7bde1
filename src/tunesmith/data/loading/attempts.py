"""An attempt to make something of rows: what was made, or a note of what went wrong that other processes can read."""

import traceback
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tunesmith.errors import DataError


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception while a batch was made, as far as it can travel between processes."""

    kind: str
    message: str
    stack: str
    row: int | None
    """Number of the row in the data set; `None` where the rows were there and the batch could not be made of them."""

    is_final: bool = False
    """Whether trying again is of no use: what the rows say is wrong, and will be."""


class Attempt:
    """Turns an exception into a note. A data set may be anybody's code, which raises what it likes.

    Example:
        `with attempt: attempt.made = make()`; afterwards either `made` or `failure` says what came of it.
    """

    def __init__(self) -> None:
        self.row: int | None = None
        """Number of the row that is being read, if it is known."""

        self.made: Any = None
        self.failure: Failure | None = None
        self.error: BaseException | None = None
        """What the failure is a note of; for this process alone."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        stack = "".join(traceback.format_exception(kind, error, trace))
        # A disk or a network may be back the next time.
        is_final = isinstance(error, DataError) and not isinstance(error.__cause__, OSError)
        self.error = error
        self.failure = Failure(kind.__name__, str(error), stack, self.row, is_final)
        return True
