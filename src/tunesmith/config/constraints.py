"""What a setting's type cannot say by itself: ranges, paths and secrets.

They stand inside `Annotated` in the group dataclasses and are read by coercion, the JSON schema and the reference.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

Scalar = str | int | float | bool | None
"""A value without parts, as it stands inside a free mapping such as `lr_scheduler_kwargs`."""


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers that are allowed, both ends included unless said otherwise."""

    low: float | None = None
    high: float | None = None
    low_open: bool = False
    high_open: bool = False

    def contains(self, number: float) -> bool:
        """Return whether a number lies inside."""
        if self.low is not None and (number <= self.low if self.low_open else number < self.low):
            return False
        return self.high is None or (number < self.high if self.high_open else number <= self.high)

    def render(self) -> str:
        """Return the range in words, such as `1 or more`."""
        low = None if self.low is None else f"{'more than ' if self.low_open else ''}{_write(self.low)}"
        high = None if self.high is None else f"{'less than ' if self.high_open else ''}{_write(self.high)}"
        if high is None:
            return f"{low}" if self.low_open else f"{low} or more"
        if low is None:
            return f"{high}" if self.high_open else f"{high} or less"
        if not self.low_open and not self.high_open:
            return f"from {low} to {high}"
        return f"{low if self.low_open else f'{low} or more'} and {high if self.high_open else f'at most {high}'}"


def _write(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"


@dataclass(frozen=True, slots=True)
class IsPath:
    """Text that names a file or folder: a leading `~` becomes the home folder."""


@dataclass(frozen=True, slots=True)
class KeepsCommas:
    """A list of sentences: one text is one item, however many commas it has."""


@dataclass(frozen=True, slots=True)
class TakesEntries:
    """A list of names that may hold whole entries of the catalogue in a file; each is given a name when it is read."""


@dataclass(frozen=True, slots=True)
class IsShareOrCount:
    """A share below 1 or a count from 1 on: 1 is one, and 1.0 is refused, since it reads like a share of all."""


PathText = Annotated[str, IsPath()]
PositiveInt = Annotated[int, Range(1)]
NonNegativeInt = Annotated[int, Range(0)]
PositiveFloat = Annotated[float, Range(0, low_open=True)]
NonNegativeFloat = Annotated[float, Range(0)]
Fraction = Annotated[float, Range(0, 1)]
ShareOrCount = Annotated[float, Range(0), IsShareOrCount()]
FractionBelowOne = Annotated[float, Range(0, 1, high_open=True)]

Sentences = Annotated[tuple[str, ...], KeepsCommas()]

DataSetNames = Annotated[tuple[str, ...], TakesEntries()]

ScalarMapping = Mapping[str, Scalar]
TextMapping = Mapping[str, str]
TreeMapping = Mapping[str, Any]
