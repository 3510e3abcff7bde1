"""Written values to typed values: the same text means the same thing in a file, a variable and a flag.

A plain (unquoted) value of a file, an environment variable and a word of the command line all arrive here as
`PlainText`, so that `no` can be a strategy in one setting and a boolean in another; JSON and Python values arrive with
their own types.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import yaml

from tunesmith.config.constraints import Range, Scalar
from tunesmith.config.suggestions import render_suggestion

_TRUE = frozenset({"true", "yes", "on", "y", "t", "1"})
_FALSE = frozenset({"false", "no", "off", "n", "f", "0"})
_NULL = frozenset({"", "null", "none", "~"})
_Parsed = TypeVar("_Parsed")
_INTEGER = re.compile(r"[+-]?\d+(_\d+)*")
_FLOAT = re.compile(r"[+-]?(\d+(_\d+)*\.?\d*|\.\d+)([eE][+-]?\d+)?")


class PlainText(str):
    """A value written without quotes, whose type depends on the setting it is for."""

    __slots__ = ()


class MismatchError(ValueError):
    """A written value does not fit its setting."""

    def __init__(self, message: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.path = path
        """Place inside a nested value; empty for the value itself."""


def render_value(value: object) -> str:
    """Return a value as a user would write it, shortened."""
    if value is None or (isinstance(value, PlainText) and not value):
        return "empty (null)"
    if isinstance(value, bool):
        return str(value).lower()
    text = f"'{value}'" if isinstance(value, str) and not isinstance(value, PlainText) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def is_null(value: object, *, quoted: bool) -> bool:
    """Return whether a value means "not set"; with `quoted`, quoted words such as "none" do too."""
    if value is None:
        return True
    return (isinstance(value, PlainText) or (quoted and isinstance(value, str) and value != "")) and (
        value.lower() in _NULL
    )


class Kind(Protocol):
    """One sort of value that a setting takes."""

    def convert(self, value: object) -> object:
        """Return the typed value, or raise `MismatchError`."""
        ...

    def render(self) -> str:
        """Return what is allowed, in words."""
        ...


@dataclass(frozen=True, slots=True)
class Words:
    """One of a fixed set of words."""

    words: tuple[str, ...]

    def convert(self, value: object) -> str:
        """Return the word; capitals do not matter."""
        if isinstance(value, str) and value.lower() in self.words:
            return value.lower()
        hint = render_suggestion(value, self.words) if isinstance(value, str) else ""
        raise MismatchError(hint)

    def render(self) -> str:
        """Return the words."""
        return f"one of {', '.join(self.words)}" if len(self.words) > 1 else self.words[0]


@dataclass(frozen=True, slots=True)
class Boolean:
    """True or false."""

    def convert(self, value: object) -> bool:
        """Return a boolean from `true`, `yes`, `on`, `1` and their opposites."""
        if isinstance(value, bool):
            return value
        text = str(value).lower() if isinstance(value, str | int) else ""
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
        raise MismatchError("")

    def render(self) -> str:
        """Return the two values."""
        return "true or false"


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number or a decimal one."""

    whole: bool
    allowed: Range = field(default_factory=Range)
    is_share_or_count: bool = False
    """Whether numbers below 1 are shares and whole ones counts, so that 1 and 1.0 differ."""

    def convert(self, value: object) -> int | float:
        """Return the number; `1e-4`, `1E-4`, "1e-4" and 0.0001 are the same."""
        number = find_number(value)
        if number is None or (self.whole and number != int(number)) or not self.allowed.contains(number):
            raise MismatchError("")
        if self.is_share_or_count and number == 1 and isinstance(number, float):
            raise MismatchError(" As a share, 1.0 leaves no rows to train on; write 1 for one row.")
        is_count = self.is_share_or_count and isinstance(number, int)  # kept, so that a saved 1 is read as 1 again
        return int(number) if self.whole or is_count else float(number)

    def render(self) -> str:
        """Return the sort of number and its range."""
        bounds = "" if self.allowed == Range() else f", {self.allowed.render()}"
        return f"a {'whole ' if self.whole else ''}number{bounds}"


@dataclass(frozen=True, slots=True)
class Text:
    """Any text, or the path of a file or folder."""

    is_path: bool = False

    def convert(self, value: object) -> str:
        """Return plain text; numbers keep their digits."""
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, str | int | float | Path):
            raise MismatchError("")
        text = str(value)
        if not self.is_path or not text.startswith("~"):
            return text
        try:
            return str(Path(text).expanduser())
        except RuntimeError as error:
            hint = f" Nobody has a home folder that this could mean; write `./{text}` for a file of that name."
            raise MismatchError(hint) from error

    def render(self) -> str:
        """Return the sort of text."""
        return "a path" if self.is_path else "text"


@dataclass(frozen=True, slots=True)
class ListOf:
    """Several values of one kind: a list, or one text with commas."""

    item: Kind
    keeps_commas: bool = False
    takes_entries: bool = False
    """Whether a file may have descriptions of data sets among the items."""

    def convert(self, value: object) -> tuple[object, ...]:
        """Return the items in order; empty parts between commas are left out."""
        return tuple(self.item.convert(part) for part in self._split(value))

    def _split(self, value: object) -> Sequence[object]:
        if isinstance(value, list | tuple):
            return value
        if not isinstance(value, str):
            return (value,)
        if value.startswith("["):
            return _parse_flow(value, list)
        if self.keeps_commas:
            return (value,)
        return [PlainText(part.strip()) for part in value.split(",") if part.strip()]

    def render(self) -> str:
        """Return what a list of these is."""
        described = " or, in a file, a description such as {file_name: rows.jsonl}" if self.takes_entries else ""
        return f"a list (or words with commas between them), each {self.item.render()}{described}"


@dataclass(frozen=True, slots=True)
class MappingOf:
    """Names with values."""

    values: Literal["text", "scalar", "tree"]

    def convert(self, value: object) -> dict[str, object]:
        """Return the mapping with its leaves typed; text `{a: 1}` and words `a=1` are mappings too."""
        mapping = self._parse(value)
        return {str(name): self._leaf(inner, (str(name),)) for name, inner in mapping.items()}

    def _parse(self, value: object) -> Mapping[object, object]:
        if isinstance(value, Mapping):
            return value
        if isinstance(value, str) and value.startswith("{"):
            return _parse_flow(value, dict)
        words = value if isinstance(value, list | tuple) else str(value).split(",")
        pairs = [str(word).partition("=") for word in words]
        if not isinstance(value, str | list | tuple) or not all(name and equals for name, equals, _ in pairs):
            raise MismatchError("")
        return {name.strip(): PlainText(text.strip()) for name, _, text in pairs}

    def _leaf(self, value: object, path: tuple[str, ...]) -> object:
        if self.values == "tree" and isinstance(value, Mapping):
            return {str(name): self._leaf(inner, (*path, str(name))) for name, inner in value.items()}
        if self.values == "tree" and isinstance(value, list | tuple):
            return [self._leaf(inner, (*path, str(index))) for index, inner in enumerate(value)]
        if isinstance(value, Mapping | list | tuple):
            raise MismatchError("", path)
        if self.values == "text":
            return Text().convert("" if value is None else value)
        return interpret_scalar(value, numbers_in_quotes=self.values == "scalar")

    def render(self) -> str:
        """Return what the mapping holds."""
        return "a mapping of names to " + {"text": "text", "scalar": "single values", "tree": "values"}[self.values]


def find_number(value: object) -> int | float | None:
    """Return the finite number that a value is or spells, or `None`."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value if math.isfinite(value) else None
    if not isinstance(value, str):
        return None
    text = value.strip()
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else None
    return None


def interpret_scalar(value: object, *, numbers_in_quotes: bool) -> Scalar:
    """Return the type that a free-standing value looks like: number, boolean, nothing, or text.

    Args:
        value: A leaf of a nested value.
        numbers_in_quotes: Whether quoted text that spells a number is a number, too.
    """
    if not isinstance(value, str):
        if value is None or isinstance(value, bool | int | float):
            return value
        return str(value)
    if isinstance(value, PlainText) or numbers_in_quotes:
        number = find_number(value)
        if number is not None:
            return number
    if isinstance(value, PlainText):
        if value.lower() in {"true", "false"}:
            return value.lower() == "true"
        if value.lower() in {"", "null", "~"}:
            return None
    return str(value)


def _parse_flow(text: str, expected: type[_Parsed]) -> _Parsed:
    """Parse `[a, b]` or `{a: 1}` written inside one word, as YAML and JSON have them."""
    try:
        parsed = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - BaseLoader makes only text, lists and mappings
    except yaml.YAMLError as error:
        raise MismatchError(" It cannot be read as YAML or JSON.") from error
    plain = _as_plain(parsed)
    if not isinstance(plain, expected):
        raise MismatchError("")
    return plain


def _as_plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(name): _as_plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_as_plain(inner) for inner in value]
    return PlainText(value)
