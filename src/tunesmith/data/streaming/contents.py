"""Whether files are those that a stream was begun with, told by their names, sizes and a sample of their bytes.

Folders may move to another machine, where files get other times. So the bytes count: all of a small file, and pieces
from its start to its end of a large one. An edit between the pieces that keeps the size shows in the time alone.
"""

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from tunesmith.data.streaming.shards import find_stamp

_WHOLE_BYTES = 1 << 20
_NUM_PIECES = 16
_PIECE_BYTES = 1 << 14
"""A file of at most the first is read whole; of a larger one so many pieces of so many bytes, evenly apart."""


def describe_file(path: Path) -> list[Any]:
    """Return name, size and a digest of sampled bytes, as JSON values; of files in an object store no digest."""
    stamp = find_stamp(path)
    return [path.name, path.stat().st_size] if stamp is None else [path.name, stamp[0], _sampled_digest(path, stamp)]


def modification_time(path: Path) -> int | None:
    """Return when a file on this disk was written last, in nanoseconds; nothing for one in an object store."""
    stamp = find_stamp(path)
    return None if stamp is None else stamp[1]


@lru_cache(maxsize=1 << 16)
def _sampled_digest(path: Path, stamp: tuple[int, int]) -> str:
    size = stamp[0]
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        if size <= _WHOLE_BYTES:
            digest.update(file.read())
        else:
            for number in range(_NUM_PIECES):
                file.seek((size - _PIECE_BYTES) * number // (_NUM_PIECES - 1))
                digest.update(file.read(_PIECE_BYTES))
    return digest.hexdigest()
