"""How many files this process may hold open at once, how many it does, and more of them where the system allows it."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

try:
    import resource as _resource
except ImportError:  # Windows, where handles are plenty
    _limits: ModuleType | None = None
else:
    _limits = _resource

_OWN_DESCRIPTORS = Path("/proc/self/fd") if sys.platform == "linux" else Path("/dev/fd")
_UNLIMITED = 1 << 30


@dataclass(frozen=True, slots=True)
class OpenFileLimit:
    """The most files that a process may hold open."""

    soft: int
    """What holds now; a process may raise it up to `hard` by itself."""

    hard: int
    """What only the administrator can raise (`ulimit -Hn`)."""


def read_open_file_limit() -> OpenFileLimit:
    """Return the limits of this process."""
    if _limits is None:
        return OpenFileLimit(_UNLIMITED, _UNLIMITED)
    return OpenFileLimit(*map(_number, _limits.getrlimit(_limits.RLIMIT_NOFILE)))


def raise_open_file_limit(needed: int) -> OpenFileLimit:
    """Raise the soft limit as far as needed and as the hard one allows, never lower it, and return what holds then."""
    limit = read_open_file_limit()
    target = min(needed, limit.hard)
    if _limits is None or target <= limit.soft:
        return limit
    _, hard = _limits.getrlimit(_limits.RLIMIT_NOFILE)
    _limits.setrlimit(_limits.RLIMIT_NOFILE, (target, hard))
    return OpenFileLimit(target, limit.hard)


def count_open_files() -> int:
    """Return how many files, pipes and sockets this process holds open; 0 where the system does not say."""
    return len(os.listdir(_OWN_DESCRIPTORS)) if _OWN_DESCRIPTORS.is_dir() else 0


def _number(limit: int) -> int:
    assert _limits is not None
    return _UNLIMITED if limit == _limits.RLIM_INFINITY else min(limit, _UNLIMITED)
