"""What stands in a file and cannot be used: values, and whole rows."""

import re
from dataclasses import dataclass

_BROKEN_BYTE = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True, slots=True)
class UnreadableValue:
    """Stands for what is in a row and is no value to use; an error only where somebody uses it."""

    what: str
    """In words, such as `a value of type date32 that cannot be read`."""

    def __repr__(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True)
class MalformedRow:
    """Stands where a row should be and is none; the rows around it can be read."""

    what: str
    """In words, such as `line 3, column 5 is not valid JSON: Expecting value`."""


def find_broken_byte(text: str) -> str | None:
    """Return in words where a text is not UTF-8; nothing where it is.

    Args:
        text: Read with the error handler `surrogateescape`, so that each byte that fits nowhere is half of a surrogate
            pair, which no UTF-8 text has.
    """
    found = None if text.isascii() else _BROKEN_BYTE.search(text)
    if found is None:
        return None
    byte = ord(found[0]) - 0xDC00
    return f"character {found.start() + 1} is not UTF-8 text (byte {byte:#04x}); save the file as UTF-8"
