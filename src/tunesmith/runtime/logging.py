"""Messages to the user: plain lines on standard error, coloured on a terminal, one process speaks."""

import logging
import os
import sys
from contextlib import suppress
from typing import TextIO

_COLOURS = {logging.DEBUG: "2", logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "31"}
_NOISY_LIBRARIES = (
    "httpx",
    "httpcore",
    "urllib3",
    "filelock",
    "fsspec",
    "matplotlib",
    "PIL",
    "datasets",
    "accelerate",
)
# Warnings of these are about kernels of other machines, at every import and whether or not the run uses them.
_WARNINGS_OF_NO_USE = ("torchao", "torch.utils._pytree")
_WRITING_THEMSELVES = ("huggingface_hub",)
"""These write their messages to standard error, and would be heard twice."""


def configure_logging(level: int | str = logging.INFO, rank: int = 0) -> None:
    """Send the package's messages to standard error; calling it again replaces the earlier choice.

    Args:
        level: Least severe level shown, a number or a name such as `INFO`.
        rank: Number of this process in the run. Processes other than 0 show warnings and errors only, marked.
    """
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, ConsoleHandler)]:
        root.removeHandler(handler)
    root.addHandler(ConsoleHandler(rank=rank))
    numeric = logging.getLevelNamesMapping()[level.upper()] if isinstance(level, str) else level
    logging.getLogger("tunesmith").setLevel(numeric if rank == 0 else max(numeric, logging.WARNING))
    for name in _NOISY_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in _WARNINGS_OF_NO_USE:
        logging.getLogger(name).setLevel(logging.ERROR)
    for name in _WRITING_THEMSELVES:
        logging.getLogger(name).propagate = False


class ConsoleHandler(logging.Handler):
    """Writes messages to standard error without breaking a progress bar that is being drawn there."""

    def __init__(self, stream: TextIO | None = None, rank: int = 0) -> None:
        super().__init__()
        self._stream = stream
        self.setFormatter(ConsoleFormatter(is_coloured=wants_colour(self.stream), rank=rank))

    @property
    def stream(self) -> TextIO:
        """Where messages go. Looked up each time: tests and notebooks exchange `sys.stderr`."""
        return self._stream or sys.stderr

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message."""
        line = self.format(record)
        progress = sys.modules.get("tqdm")
        # A run goes on without its messages when their reader is gone: a closed terminal, a pipe to a dead program, a
        # full disk behind `2> log.txt`.
        with suppress(OSError):
            if progress is None:
                self.stream.write(line + "\n")
            else:  # clears a bar on the same terminal first and draws it again below the message
                progress.tqdm.write(line, file=self.stream)
            self.stream.flush()


class ConsoleFormatter(logging.Formatter):
    """Leaves information as it is and marks everything else with its level."""

    def __init__(self, *, is_coloured: bool, rank: int = 0) -> None:
        super().__init__()
        self.is_coloured = is_coloured
        self.rank = rank

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of one message, tracebacks included."""
        text = super().format(record)
        if record.levelno != logging.INFO:
            text = f"{record.levelname.lower()}: {text}"
        if self.rank:
            text = f"[process {self.rank}] {text}"
        colour = _COLOURS.get(record.levelno)
        return f"\x1b[{colour}m{text}\x1b[0m" if colour and self.is_coloured else text


def wants_colour(stream: TextIO) -> bool:
    """Return whether to colour text on a stream: a terminal that is not dumb, and NO_COLOR is not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
