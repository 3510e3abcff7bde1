"""What is wrong with rows of one file: malformed ones, and values that nobody can use."""

from dataclasses import dataclass
from pathlib import Path

from tunesmith.errors import DataError

_SHOWN_PROBLEMS = 3


@dataclass(frozen=True, slots=True)
class UnreadableValue:
    """Stands for what is in a row and is no value to use; an error only where somebody uses it."""

    what: str
    """In words, such as `a value of type date32 that cannot be read`."""

    def __repr__(self) -> str:
        return self.what


class FileProblems:
    """Malformed rows of one file, collected so that the first few are shown together."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: list[str] = []

    def add(self, row: int, message: str) -> None:
        """Note a row, counted from 0; the third one ends the reading."""
        self.messages.append(f"row {row + 1}: {message}")
        if len(self.messages) == _SHOWN_PROBLEMS:
            self.check()

    def check(self) -> None:
        """Raise if there was any."""
        if self.messages:
            raise DataError(f"{self.path}: malformed rows. " + "; ".join(self.messages))
