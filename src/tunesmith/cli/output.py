r"""The only module that prints: safe on any console, plain when nobody is watching.

Colour needs a terminal and no `NO_COLOR`. A console that cannot show a character gets its escape (`\u4f60`)
instead of a crash, so that Chinese text passes through an ASCII pipe without losing anything.
"""

import codecs
import importlib
import io
import json
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, TextIO

from tunesmith.errors import DataError
from tunesmith.runtime.logging import wants_colour

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Span(NamedTuple):
    """A part of a text, marked or not."""

    text: str
    is_marked: bool


def show_text(text: str = "", *, end: str = "\n") -> None:
    """Print text to standard output at once."""
    _write(sys.stdout, text + end)


def show_json(value: object, *, indent: int | None = None) -> None:
    r"""Print a value as JSON. Where the console is not one of UTF-8, with JSON's own escapes: `\xe9` is none of them.

    What JSON has no type for, such as dates of columnar files, is printed as text.
    """
    is_unicode = codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
    show_text(json.dumps(value, indent=indent, ensure_ascii=not is_unicode, default=str))


def show_error(text: str) -> None:
    """Print an error to standard error, marked `error:` and red on a terminal.

    Where nobody reads it any more (a closed terminal), the exit code alone tells of it.
    """
    mark = "\x1b[31merror:\x1b[0m" if wants_colour(sys.stderr) else "error:"
    with suppress(OSError):
        _write(sys.stderr, f"{mark} {text}\n")


def show_pieces(pieces: Iterable[str]) -> str:
    """Print pieces of one text as they come, then end the line; return the whole text.

    The line is ended also when the pieces stop with an error or an interruption.
    """
    shown: list[str] = []
    try:
        for piece in pieces:
            shown.append(piece)
            show_text(piece, end="")
    finally:
        show_text()
    return "".join(shown)


def show_spans(spans: Iterable[Span]) -> None:
    """Print a text whose marked parts are green on a terminal, the rest dim; elsewhere `>>>` and `<<<` enclose them.

    Control characters are shown as escapes: text of a data set must not move the cursor of whoever looks at it.
    """
    coloured = wants_colour(sys.stdout)
    marks = ("\x1b[32m", "\x1b[0m") if coloured else (">>>", "<<<")
    others = ("\x1b[2m", "\x1b[0m") if coloured else ("", "")
    pieces = []
    for text, is_marked in spans:
        before, after = marks if is_marked else others
        pieces.append(f"{before}{escape_controls(text)}{after}")
    show_text("".join(pieces))


def escape_controls(text: str) -> str:
    r"""Return a text with control characters other than new lines and tabs as escapes such as `\x1b`."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: framed and wrapped to a terminal, one `column: value` line per cell elsewhere."""
    if not sys.stdout.isatty():
        show_text(title)
        for row in rows:
            show_text("\n".join(f"  {column}: {cell}" for column, cell in zip(columns, row, strict=True)))
            show_text()
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, show_lines=True, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    # Markup and emoji codes off: what is shown is what was written, brackets included.
    console = Console(file=sys.stdout, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:  # rich itself crashes on characters that the console lacks
        console.print(table)
    show_text(capture.get(), end="")


def is_interactive() -> bool:
    """Return whether a person types and reads: standard input and output are both a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def read_line(prompt: str) -> str | None:
    """Ask for one line of standard input; `None` when there is no more.

    An empty prompt is for pipes: nothing is printed then. Bytes that the console's encoding does not know, as those
    of Chinese in an ASCII locale, are read as UTF-8.

    Raises:
        DataError: They are not UTF-8 either.
    """
    if prompt:
        with suppress(ImportError):  # gives arrow keys and history; Windows has no readline
            importlib.import_module("readline")
    show_text(prompt, end="")
    if isinstance(sys.stdin, io.TextIOWrapper) and sys.stdin.errors != "surrogateescape":
        sys.stdin.reconfigure(errors="surrogateescape")
    try:
        return _read_escaped(input())
    except EOFError:
        return None


def _read_escaped(line: str) -> str:
    """Return a line with its escaped bytes, which stand as lone surrogates, read as UTF-8."""
    if not any("\udc80" <= character <= "\udcff" for character in line):
        return line
    encoding = sys.stdin.encoding or "utf-8"
    try:
        return line.encode(encoding, errors="surrogateescape").decode("utf-8")
    except UnicodeDecodeError as error:
        other = "" if codecs.lookup(encoding).name == "utf-8" else f", nor {encoding}"
        raise DataError(
            f"The input is not UTF-8{other}: byte 0x{error.object[error.start]:02x} in "
            f"{line.encode('ascii', errors='backslashreplace').decode('ascii')!r}. Convert it to UTF-8, or set "
            "PYTHONIOENCODING to its encoding."
        ) from error


def _write(stream: TextIO, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, errors="backslashreplace").decode(encoding))
    stream.flush()
