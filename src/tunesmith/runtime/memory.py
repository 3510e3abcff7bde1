"""Memory and processor time that this process uses and may use, containers included."""

import ctypes
import math
import os
import platform
import sys
from pathlib import Path

import psutil

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")

# Names and numbers of mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_SAFE_MMAP_THRESHOLD = 32 * 2**20
_FAST_MMAP_THRESHOLD = 96 * 2**20
_AMPLE_MEMORY_BYTES = 8 * 2**30
_NEVER_TRIM = 2**31 - 1


def process_memory_bytes() -> int:
    """Return the memory that this process holds now (resident set)."""
    return int(psutil.Process().memory_info().rss)


def peak_process_memory_bytes() -> int:
    """Return the most memory that this process has held since it started."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def available_memory_bytes(cgroups: Path = _CGROUPS, own_cgroup: Path = _OWN_CGROUP) -> int:
    """Return the memory that this process can still take without swapping or being killed.

    The smaller of what the machine has free and what the container's limit leaves. File cache inside the
    container counts as free: the kernel gives it back before it kills anything.
    """
    free: float = psutil.virtual_memory().available
    for folder in _cgroup_chain(cgroups, own_cgroup):
        free = min(free, _memory_left(folder, "memory.max", "memory.current", "inactive_file"))
    for folder in _cgroup_chain(cgroups, own_cgroup, "memory"):
        left = _memory_left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        free = min(free, left)
    return int(free)


def cpu_quota(cgroups: Path = _CGROUPS, own_cgroup: Path = _OWN_CGROUP) -> float:
    """Return how many processors this process may keep busy: its affinity, cut by the container's quota."""
    processors = float(len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)
    for folder in _cgroup_chain(cgroups, own_cgroup):
        file = folder / "cpu.max"
        if not file.is_file():
            continue
        quota, _, period = file.read_text(encoding="ascii").strip().partition(" ")
        if quota != "max":
            processors = min(processors, int(quota) / int(period or 100_000))
    for folder in _cgroup_chain(cgroups, own_cgroup, "cpu"):
        allowed = _read_number(folder / "cpu.cfs_quota_us")  # -1 where there is no limit, which is no number here
        if allowed is not None:
            processors = min(processors, allowed / (_read_number(folder / "cpu.cfs_period_us") or 100_000))
    return processors


def keep_freed_memory() -> bool:
    """Let the allocator of the C library keep memory that tensors give back, instead of returning it at once.

    glibc maps every larger block freshly from the kernel, which clears each page when it is first touched. On a CPU
    that is up to a tenth of a training step, whose tensors have the same sizes again and again; a sixth with a
    vocabulary of 150k words, whose logits come in blocks of 64 MiB. Keeping blocks of that size leaves gaps between
    them, which cost 0.4 GB there, so it is only done where memory is ample. Blocks above the threshold are still mapped
    and given back. Older versions of glibc allow no more than 32 MiB.

    Returns:
        Whether this C library has the setting.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    thresholds = [_SAFE_MMAP_THRESHOLD]
    if available_memory_bytes() >= _AMPLE_MEMORY_BYTES:
        thresholds.insert(0, _FAST_MMAP_THRESHOLD)
    keeps_blocks = any(mallopt(_M_MMAP_THRESHOLD, threshold) == 1 for threshold in thresholds)
    return keeps_blocks and mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM) == 1


def _cgroup_chain(cgroups: Path, own_cgroup: Path, controller: str | None = None) -> list[Path]:
    """Return the control groups of this process, outermost first; limits of all of them hold.

    Args:
        cgroups: Where control groups are mounted.
        own_cgroup: Lists those of this process as `number:controllers:path`.
        controller: Of version 1, where each has a tree of its own; the one tree of version 2 when not given.
    """
    top = cgroups if controller is None else cgroups / controller
    inside = top / _own_path(own_cgroup, controller)
    folders = [inside, *inside.parents]
    # Inside of a container its own group is the top, whatever the path says.
    return [folder for folder in reversed(folders[: folders.index(top) + 1]) if folder.is_dir()]


def _own_path(own_cgroup: Path, controller: str | None) -> str:
    """Return where the group of this process lies below the top of its tree; empty where nothing says."""
    if own_cgroup.is_file():
        for line in own_cgroup.read_text(encoding="utf-8").splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" if controller is None else controller in controllers.split(","):
                return path.strip("/")
    return ""


def _memory_left(folder: Path, limit_file: str, used_file: str, cache_field: str) -> float:
    limit, used = _read_number(folder / limit_file), _read_number(folder / used_file)
    if limit is None or used is None:
        return math.inf
    return max(0, limit - used + _read_field(folder / "memory.stat", cache_field))


def _read_number(file: Path) -> int | None:
    if not file.is_file():
        return None
    text = file.read_text(encoding="ascii").strip()
    return int(text) if text.isdigit() else None


def _read_field(file: Path, name: str) -> int:
    if file.is_file():
        for line in file.read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
