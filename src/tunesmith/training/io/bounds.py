"""How many workers a process may have: by processors, memory, open files and rows, with the reason."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from tunesmith.runtime.memory import available_memory_bytes, cpu_quota
from tunesmith.runtime.open_files import OpenFileLimit, count_open_files, raise_open_file_limit, read_open_file_limit
from tunesmith.runtime.ranks import Ranks

logger = logging.getLogger(__name__)

MOST_WORKERS = 64
_ASSUMED_WORKER_BYTES = 200 * 2**20
"""Memory of a worker before one was measured: Python with the libraries it shares with the training process."""

_MEMORY_SHARE = 0.5
"""Share of the free memory that workers may fill."""

_LEAST_CPU_SHARE = 0.05
"""Even a worker that only waits for the network needs some processor time."""

FILES_PER_WORKER = 8
"""Descriptors that the training process holds for each worker: pipes, locks and its sentinel."""

FILES_PER_BATCH = 12
"""Descriptors of one batch on its way, one for each tensor, where memory is shared by descriptors."""

SPARE_FILES = 64
"""For checkpoints, logs and libraries."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The most workers, and what limits them."""

    workers: int
    reason: str


@dataclass(frozen=True, slots=True)
class Demand:
    """What is known about workers from measurements; the defaults are for the time before any."""

    cpu_share: float = 1.0
    """Processor time of a worker per second of its work: 1 computes, 0 waits for a disk or the network."""

    model_cpus: float = 0.0
    """Processors that the training process keeps busy while the model runs."""

    worker_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """What a run may use of this machine. Each process of the run gets an equal part."""

    processors: float
    free_bytes: int
    processes: int = 1

    @classmethod
    def measured(cls, ranks: Ranks) -> "Machine":
        """Look at the limits that hold now."""
        return cls(cpu_quota(), available_memory_bytes(), ranks.local_world_size)

    def bound(self, demand: Demand, *, num_batches: int, files: "FileNeed | None" = None) -> Bound:
        """Return the most workers that each process may have.

        Args:
            demand: What a worker takes.
            num_batches: Of an epoch: more workers than batches have nothing to do.
            files: Need of open files and what there is; not looked at when not given.
        """
        share = self.processors / self.processes
        # One worker is always worth a try: it is given back if the run gets no faster.
        free = (share - demand.model_cpus) / max(demand.cpu_share, _LEAST_CPU_SHARE)
        by_cpu = max(1, math.floor(free + 0.5))  # a model that takes a hundredth of a processor leaves the whole of it
        bounds = [
            Bound(by_cpu, f"{share:.3g} processors for each process of the run"),
            self.memory_bound(demand.worker_bytes),
            Bound(num_batches, f"{num_batches} batches in an epoch"),
            Bound(MOST_WORKERS, "more have never helped"),
        ]
        if files is not None:
            bounds.append(files.bound())
        return min(bounds, key=lambda bound: bound.workers)

    def memory_bound(self, worker_bytes: int | None) -> Bound:
        """Return the most workers that each process has memory for.

        Args:
            worker_bytes: What one takes; assumed where it was not measured yet.
        """
        per_worker = worker_bytes or _ASSUMED_WORKER_BYTES
        return Bound(
            math.floor(_MEMORY_SHARE * self.free_bytes / self.processes / per_worker),
            f"{per_worker / 2**20:.0f} MiB for each worker, {self.free_bytes / 2**30:.1f} GiB free",
        )


@dataclass(frozen=True, slots=True)
class FileNeed:
    """How many descriptors this process needs with some workers, and how many it may have."""

    held: int
    """Open before any worker is started."""

    limit: OpenFileLimit
    shares_by_name: bool = False
    """Whether batches travel in named files of shared memory, which need no descriptor while they wait."""

    def needed(self, num_workers: int, prefetch_factor: int) -> int:
        """Return the descriptors needed."""
        per_batch = 0 if self.shares_by_name else FILES_PER_BATCH * prefetch_factor
        return self.held + SPARE_FILES + num_workers * (FILES_PER_WORKER + per_batch)

    def most_workers(self, prefetch_factor: int) -> int:
        """Return how many workers the hard limit allows."""
        per_worker = self.needed(1, prefetch_factor) - self.needed(0, prefetch_factor)
        return max(0, (self.limit.hard - self.needed(0, prefetch_factor)) // per_worker)

    def bound(self) -> Bound:
        """Return the bound on workers in the most sparing way of sharing."""
        sparing = FileNeed(self.held, self.limit, shares_by_name=True)
        return Bound(sparing.most_workers(1), f"{self.limit.hard} open files for each process (ulimit -Hn)")


def measure_files() -> FileNeed:
    """Return what this process has open now, and how much it may open."""
    return FileNeed(count_open_files(), read_open_file_limit())


@dataclass(frozen=True, slots=True)
class FilePlan:
    """How a run gets along with the open files it may have."""

    num_workers: int
    shares_by_name: bool
    note: str | None
    """For the plan, where something had to be done about it."""


def plan_open_files(num_workers: int, prefetch_factor: int, processes: int, need: FileNeed) -> FilePlan:
    """Choose the way of sharing memory, and fewer workers where even the sparing way needs too many descriptors.

    Args:
        num_workers: Asked for.
        prefetch_factor: Batches that each makes ahead.
        processes: Of the run on this machine; the limit holds for each, the sum is what the plan tells.
        need: Of one process.
    """
    wanted = need.needed(num_workers, prefetch_factor)
    in_all = f" ({wanted * processes:,} in all {processes})" if processes > 1 else ""
    text = (
        f"{num_workers} workers with {prefetch_factor} batches ahead need about {wanted:,} open files in each process"
        f"{in_all}, and {need.limit.hard:,} are allowed"
    )
    if wanted <= need.limit.hard:
        return FilePlan(num_workers, need.shares_by_name, None)
    sparing = FileNeed(need.held, need.limit, shares_by_name=True)
    if sparing.needed(num_workers, prefetch_factor) <= sparing.limit.hard:
        return FilePlan(num_workers, True, f"{text}: batches are shared through named files of shared memory.")
    fewer = min(num_workers, sparing.most_workers(prefetch_factor))
    if not fewer:
        return FilePlan(
            0,
            need.shares_by_name,
            f"{text}: batches are made in the training process. Raise the limit (ulimit -Hn) for workers.",
        )
    return FilePlan(
        fewer,
        True,
        f"{text}: {fewer} {'worker is' if fewer == 1 else 'workers are'} used, and batches are shared through named "
        "files of shared memory. Raise the limit (ulimit -Hn) for more.",
    )


def prepare_open_files(num_workers: int, prefetch_factor: int, processes: int) -> FilePlan:
    """Raise the soft limit as far as needed, and return how to get along with the hard one."""
    need = FileNeed(count_open_files(), OpenFileLimit(0, 0))
    limit = raise_open_file_limit(need.needed(num_workers, prefetch_factor))
    return plan_open_files(num_workers, prefetch_factor, processes, FileNeed(need.held, limit))


def measure_worker_bytes(processes: Sequence[int]) -> int | None:
    """Return the memory that a worker has for itself, mean over workers; `None` where none can be measured."""
    sizes = []
    for process in processes:
        try:
            sizes.append(psutil.Process(process).memory_full_info().uss)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            logger.debug("the memory of worker process %d cannot be read", process)
    return sum(sizes) // len(sizes) if sizes else None
