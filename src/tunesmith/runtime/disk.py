"""How much room there is where something is to be written, and in which words that is said."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""A full disk, a used up quota."""


def free_bytes(place: str | Path) -> int:
    """Return the room on the disk of a file or folder, which need not exist yet."""
    return shutil.disk_usage(find_existing_folder(place)).free


def find_existing_folder(place: str | Path) -> Path:
    """Return a folder, or the nearest one above it that is there."""
    nearest = Path(place).absolute()
    while not nearest.is_dir():
        nearest = nearest.parent
    return nearest


def render_bytes(num_bytes: int) -> str:
    """Return a size as `1.5 GiB`, `20.0 MiB` or `3.0 KiB`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes / 2**10:.1f} KiB"


def render_room(place: str | Path, needed_bytes: int = 0) -> str:
    """Return how much is free: `3.0 KiB are free in /out`; and needed, where that is known."""
    free = f"{render_bytes(free_bytes(place))} are free in {find_existing_folder(place)}"
    return f"it takes about {render_bytes(needed_bytes)}, and {free}" if needed_bytes else free


@contextmanager
def name_failed_file(place: str | Path) -> Iterator[None]:
    """Have an error of the system say which file it is about; one that comes from a write does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(place)
        raise
