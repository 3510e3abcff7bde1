"""How many processes tokenize where nobody says: measured on the first rows, and never more than help.

A fast tokenizer keeps all cores busy by itself. What it leaves idle is the time of Python around it: rendering with a
foreign template, formats, long tails of single rows. So the first second is done in this process, and what its cores
did meanwhile says whether others would have found work.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tunesmith.data.workers import over_workers
from tunesmith.runtime.memory import available_memory_bytes, cpu_quota, process_memory_bytes

logger = logging.getLogger(__name__)

Chunk = TypeVar("Chunk")
Result = TypeVar("Result")

_LOOK_SECONDS = 1.0
_START_SECONDS = 10.0
"""What starting workers costs: each imports the libraries and unpacks a tokenizer."""

_WORTHWHILE = 0.7
"""Workers are started if what is left takes at most this share of the time with them."""

_MEMORY_SHARE = 0.5
"""Share of the free memory that workers may take."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the first rows took in one process."""

    rows: int
    wall_seconds: float
    cpu_seconds: float
    """Over all threads."""

    rows_left: int | None
    """About how many there are to come; `None` where there is no telling."""


@dataclass(frozen=True, slots=True)
class Room:
    """What the machine has for workers."""

    processors: float
    memory_bytes: int
    worker_bytes: int
    """What one worker takes."""


def choose_workers(measured: Measured, room: Room) -> int:
    """Return how many workers to start; 1 goes on in this process."""
    most = min(int(room.processors), int(_MEMORY_SHARE * room.memory_bytes / max(1, room.worker_bytes)))
    if most < 2 or measured.rows_left is None or not measured.rows:
        return 1
    alone = measured.wall_seconds / measured.rows * measured.rows_left
    together = _START_SECONDS + measured.cpu_seconds / measured.rows * measured.rows_left / most
    return most if together < _WORTHWHILE * alone else 1


def over_helpful_workers(
    chunks: Iterable[Chunk],
    work: Callable[[Chunk], Result],
    *,
    count_rows: Callable[[Chunk], int],
    rows_left: Callable[[], int | None],
) -> Iterator[Result]:
    """Apply a function to chunks, in as many processes as help.

    Args:
        chunks: Read as needed.
        work: Picklable.
        count_rows: Rows in a chunk.
        rows_left: About how many rows are to come; asked once, after the first second.

    Yields:
        One result per chunk, in order.

    Raises:
        DataError: A worker was killed.
    """
    remaining = iter(chunks)
    rows, wall, cpu = 0, 0.0, 0.0
    for chunk in remaining:
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        result = work(chunk)
        wall += time.perf_counter() - wall_start
        cpu += time.process_time() - cpu_start
        rows += count_rows(chunk)
        yield result
        if wall >= _LOOK_SECONDS:
            break
    number = choose_workers(Measured(rows, wall, cpu, rows_left()), measure_room()) if can_start_workers() else 1
    if number == 1:
        yield from map(work, remaining)
        return
    logger.info(
        "Tokenizing in %d processes: this one kept %.1f of %.1f processors busy (preprocessing_num_workers decides).",
        number,
        cpu / max(wall, 1e-9),
        cpu_quota(),
    )
    yield from over_workers(remaining, work, number)


def measure_room() -> Room:
    """Return what this machine, or this container, has for workers now."""
    return Room(cpu_quota(), available_memory_bytes(), process_memory_bytes())


def can_start_workers() -> bool:
    """Return whether this process was started as this program, or by a launcher.

    Workers import the main module of the process. A script of somebody's own may do its work at once when it is
    imported; it gets workers only where it asks for them.
    """
    spec = vars(sys.modules["__main__"]).get("__spec__")
    return spec is not None and str(spec.name).split(".")[0] == "tunesmith"
