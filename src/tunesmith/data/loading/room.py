"""Is there room for prepared data where it is to go? Asked before hours of work, or a machine's memory, are spent."""

import os
from pathlib import Path

from tunesmith.errors import DataError
from tunesmith.runtime.disk import free_bytes, render_bytes
from tunesmith.runtime.memory import available_memory_bytes

_IN_MEMORY = ("tmpfs", "ramfs")
_MOUNTS = Path("/proc/mounts")

_MEMORY_SHARE = 0.8
"""Share of the free memory that prepared data may take: the run itself needs some too."""


def check_room(folder: Path, needed_bytes: int, mounts: Path = _MOUNTS) -> None:
    """Make sure that data fits into a folder, which may be made of memory (`/dev/shm`).

    Args:
        folder: Where it goes; it exists.
        needed_bytes: Its size, as far as it is known.
        mounts: The system's list of what is mounted where.

    Raises:
        DataError: It does not fit.
    """
    free, what = free_bytes(folder), "free there"
    if is_in_memory(folder, mounts):
        memory = int(_MEMORY_SHARE * available_memory_bytes())
        if memory < free:
            free, what = memory, "of memory to spare, which that folder is made of"
    if needed_bytes > free:
        raise DataError(
            f"{folder} cannot take the prepared data: it needs about {render_bytes(needed_bytes)}, and there are "
            f"{render_bytes(free)} {what}. Make room, or set dataset_cache_dir to another folder."
        )


def is_in_memory(folder: Path, mounts: Path = _MOUNTS) -> bool:
    """Return whether the files of a folder are kept in memory; False where the system does not say."""
    if not mounts.is_file():
        return False
    place = os.path.realpath(folder)
    best, kind = "", ""
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        _, point, found, *_ = [*line.split(" "), "", ""]
        is_inside = place == point or place.startswith(point.rstrip("/") + "/")
        if is_inside and len(point) >= len(best):
            best, kind = point, found
    return kind in _IN_MEMORY
