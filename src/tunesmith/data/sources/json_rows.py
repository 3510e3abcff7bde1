"""Rows of JSON files: an array that is read piece by piece, or one object on each line."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from tunesmith.data.sources.compression import find_file_type, open_text
from tunesmith.data.sources.problems import MalformedRow, UnreadableValue, find_broken_byte
from tunesmith.data.sources.text_rows import read_lines
from tunesmith.errors import DataError

Values = dict[str, Any]

WINDOW_CHARACTERS = 1 << 20
"""Text of an array that is in memory at a time; more only where one row is longer."""


def _build_object(pairs: list[tuple[str, Any]]) -> Values:
    """Return a JSON object. Python's own would keep the last of two values of one key, and lose the first silently."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        values.update({key: UnreadableValue(f"two values under {key!r}") for key in values if keys.count(key) > 1})
    return values


DECODER = json.JSONDecoder(object_pairs_hook=_build_object)
"""Reads rows. Where an object has a key twice, neither value is taken, and using it is an error."""

_BOM = "\ufeff"
_SHOWN_CHARACTERS = 40
_STOPPED = "as it does where its writer was stopped"
_BLANK = re.compile(r"[ \t\n\r]*")
_BORDER = re.compile(r"[ \t\n\r]*([,\]])[ \t\n\r]*")
_LONGEST_WORD = 16
"""Characters of `-Infinity` and of escapes, with room: an error this close to the end of a window may be its border."""


def read_json(path: Path) -> Iterator[Values | MalformedRow]:
    """Yield the rows of a JSON array, or of one object on each line, whichever the file holds.

    An array is never in memory as a whole, however long it is.
    """
    if holds_array(path):
        yield from _read_array(path)
        return
    _check_on_lines(path)
    yield from read_lines(path, parse_line)


def holds_array(path: Path) -> bool:
    """Return whether a file is one array of rows, whatever its name says; `.json` of JSON Lines is common, too."""
    start = _peek(path)
    if not start.startswith("["):
        return False
    first, line_end, rest = start.partition("\n")
    # One array on a line of its own is the whole file, or rows that are arrays: then others follow.
    return find_file_type(path) == ".json" or not (line_end and rest.strip() and _is_json(first))


def _peek(path: Path) -> str:
    with open_text(path, errors="replace") as file:
        return file.read(4096).lstrip()


def _is_json(text: str) -> bool:
    try:
        DECODER.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def _check_on_lines(path: Path) -> None:
    """Refuse one object over several lines: `{` and, next or after spaces, a new line."""
    start = _peek(path)
    if start.startswith("{") and start[1:].lstrip(" \t\r").startswith("\n"):
        raise DataError(
            f"{path}: it begins with one object over several lines. A data file holds an array of objects, "
            "`[{...}, {...}]`, or one object on each line."
        )


def _read_array(path: Path) -> Iterator[Values | MalformedRow]:
    with open_text(path, newline="") as file:
        yield from map(check_object, ArrayReader(path, file, WINDOW_CHARACTERS).values())


def parse_line(line: str) -> Values | MalformedRow:
    """Return the object on a line, or in words what is wrong with it.

    Args:
        line: Read with the error handler `surrogateescape`. A byte order mark before it, as files that were put behind
            each other have it, is no part of it.
    """
    broken = find_broken_byte(line)
    if broken is not None:
        return MalformedRow(broken)
    line = line.removeprefix(_BOM)
    try:
        return check_object(DECODER.decode(line))
    except json.JSONDecodeError as error:
        return MalformedRow(_describe(line, error))
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, endless brackets
        return MalformedRow(f"the JSON cannot be read: {error}")


def check_object(value: object) -> Values | MalformedRow:
    """Return a value that is an object; anything else is no row."""
    return value if isinstance(value, dict) else MalformedRow(f"expected an object, found {type(value).__name__}")


def _describe(line: str, error: json.JSONDecodeError) -> str:
    """Return what a parser found, with the text where it was, and what usually is the reason."""
    text = line.rstrip("\r\n")
    at = min(error.pos, len(text))
    shown = text[max(0, at - _SHOWN_CHARACTERS) : at + _SHOWN_CHARACTERS]
    reason = ""
    if "\0" in shown:
        return f"column {at + 1} is not valid JSON: zero bytes, as a machine that went down leaves them in a file"
    if error.msg == "Extra data":
        reason = "; a line holds one object and nothing else"
    elif text == line:  # the last line has no end
        reason = f"; the file ends here, {_STOPPED}"
    return f"column {at + 1} is not valid JSON: {error.msg}, at {shown!r}{reason}"


class ArrayReader:
    """Parses the elements of one array out of a window that moves over the file.

    The standard library's parser takes one element at a time out of the window. Where it fails close to the end, or
    inside a text that has no end yet, the window grows and the element is parsed again.
    """

    def __init__(self, path: Path, file: TextIO, window: int) -> None:
        self._path = path
        self._file = file
        self._window = window
        self._text = ""
        self._at = 0
        self._at_end = False
        self._lines = 0
        self._column = 0
        """Lines before the window, and characters of the window's first line before it."""

        self._row = 0
        self._bytes = 0
        self._counted = 0
        """Bytes of the text that was counted, and up to where that is in the window."""

        self._place = 0

    def count_bytes(self) -> int:
        """Return how many bytes of the file come before the next element, from where reading began."""
        self._bytes += len(self._text[self._counted : self._at].encode())
        self._counted = self._at
        return self._bytes

    def go_on(self, place: int) -> Iterator[object]:
        """Return the elements that are left of an array; the file was opened where one of them begins.

        Args:
            place: Where that is, in bytes, for messages: nothing is known of the rows and lines before.
        """
        self._place = place
        self._grow()
        self._next_is("")
        return self._elements(is_closed=self._at == len(self._text))

    def values(self) -> Iterator[object]:
        """Yield the elements in order.

        Raises:
            DataError: The file is not one array; the message names row, line and column.
        """
        self._begin()
        is_closed = self._next_is("]")
        if is_closed:
            self._at += 1
        yield from self._elements(is_closed=is_closed)

    def _elements(self, *, is_closed: bool) -> Iterator[object]:
        decode = DECODER.raw_decode
        while not is_closed:
            self._next_is("")  # the window may have ended between two elements
            try:
                value, end = decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._may_be_cut(error):
                    raise self._invalid(error.msg, error.pos) from error
                self._grow()
                continue
            except (ValueError, RecursionError) as error:
                raise DataError(f"{self._path}: row {self._row + 1}: the JSON cannot be read: {error}") from error
            border = _BORDER.match(self._text, end)
            if border is None:  # the window may end before the border, or within a number
                if not self._at_end and _BLANK.fullmatch(self._text, end):
                    self._grow()
                    continue
                raise self._invalid("expected a comma or ] after the row", end)
            self._at = border.end(1)  # and not behind the blanks, of which the window may hold a part
            is_closed = border[1] == "]"
            yield value
            self._row += 1
        self._next_is("")
        if self._at < len(self._text):
            raise self._invalid("there is something after the array", self._at)

    def _begin(self) -> None:
        self._grow()
        self._at = self._text.index("[") + 1

    def _next_is(self, character: str) -> bool:
        """Move over blanks to the next character, if there is one, and compare it."""
        while True:
            match = _BLANK.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text) or self._at_end:
                return self._text.startswith(character, self._at)
            self._grow()

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        unfinished = error.msg.startswith("Unterminated string") or error.pos >= len(self._text) - _LONGEST_WORD
        return unfinished and not self._at_end

    def _grow(self) -> None:
        """Drop what has been read and read on: as much as a window, or as much again where an element is longer."""
        dropped = self._text[: self._at]
        breaks = dropped.count("\n")
        self._lines += breaks
        self._column = len(dropped) - dropped.rfind("\n") - 1 + (0 if breaks else self._column)
        kept = self._text[self._at :]
        read = self._file.read(max(self._window, len(kept)))
        self.count_bytes()
        self._text = kept + read
        self._at = self._counted = 0
        self._at_end = not read

    def _invalid(self, message: str, at: int) -> DataError:
        if self._place:
            where = f"{self._bytes + len(self._text[self._counted : at].encode())} bytes behind byte {self._place}"
            return DataError(f"{self._path}: not valid JSON {where}: {message}{self._guess(at)}")
        line = self._lines + self._text.count("\n", 0, at) + 1
        start = self._text.rfind("\n", 0, at)
        column = at - start if start >= 0 else at + self._column + 1
        return DataError(
            f"{self._path}: not valid JSON at line {line}, column {column}: {message} (row {self._row + 1})"
            f"{self._guess(at)}"
        )

    def _guess(self, at: int) -> str:
        """Return the usual reason for what is there."""
        if at == self._at and self._text.startswith("]", at):  # where a row should begin behind a comma
            return "; there is a comma too many before the ]"
        is_unfinished = self._at_end and "]" not in self._text[at:]
        return f"; the file ends without a ], {_STOPPED}" if is_unfinished else ""
