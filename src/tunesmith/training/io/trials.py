"""Measures one setting of the loader after another on the real data of a run, and picks one."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, Protocol

import psutil
import torch

from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.bounds import measure_worker_bytes
from tunesmith.training.io.failures import FeedError
from tunesmith.training.io.settings import LoaderPolicy, LoaderSettings
from tunesmith.training.loaders import EpochBatches, EpochLoader, build_loader

_GOOD_ENOUGH = 0.97
"""Share of the best rate from which on the setting with the fewest workers is preferred."""

WARM_UP = 2
"""Batches that start workers and warm caches, and are not measured."""

Model = Callable[[Any], None]
"""Takes a batch and the time that the model would take for it."""


class Feed(Protocol):
    """What has the workers of a loader."""

    @property
    def worker_processes(self) -> list[int]:
        """Numbers of the worker processes there are."""
        ...

    def close(self) -> None:
        """Let all workers go."""
        ...


class DataPath(Protocol):
    """Everything between the rows of a run and its batches."""

    def open(self, settings: LoaderSettings) -> tuple[Iterator[Any], Feed]:
        """Return batches without end, made with these settings, and what has the workers.

        At the first trouble a `FeedError` is raised.
        """
        ...


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """The way of prepared rows into batches."""

    dataset: Any
    collator: Callable[[Any], Any]
    build_batches: Callable[[], EpochBatches]
    policy: LoaderPolicy = LoaderPolicy()  # noqa: RUF009 - frozen
    """Of the run; its number of workers and of batches ahead are varied."""

    ranks: Ranks = Ranks()  # noqa: RUF009 - frozen

    def open(self, settings: LoaderSettings) -> tuple[Iterator[Any], Feed]:
        """Return the batches of one epoch after another: small sets are over before they are measured."""
        policy = fix_policy(self.policy, settings)
        loader = build_loader(self.dataset, self.collator, self.build_batches(), policy=policy, ranks=self.ranks)
        return _endless(loader), loader.feed


def fix_policy(policy: LoaderPolicy, settings: LoaderSettings) -> LoaderPolicy:
    """Return a policy that keeps to these settings and gives up at the first trouble."""
    return replace(policy, start=settings, tunes_workers=False, tunes_prefetch=False, max_restarts=0)


@dataclass(frozen=True, slots=True)
class Trial:
    """What one setting came to, median over its repeats."""

    num_workers: int
    prefetch_factor: int
    batches_per_second: float
    wait_share: float
    cpu_percent: float
    """Of one processor, training process and workers together; 200 keeps two busy."""

    worker_bytes: int
    """Memory of all workers together, beyond what they share."""

    crashes: int
    """Repeats that ended in trouble; they are not in the medians."""

    trouble: str = ""
    """What the first crash said."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


def list_settings(workers: Sequence[int], prefetch: Sequence[int]) -> list[LoaderSettings]:
    """Return every combination; without workers the number of batches ahead means nothing and is not varied."""
    return [LoaderSettings(number, ahead) for number in workers for ahead in (prefetch if number else prefetch[:1])]


def measure_grid(
    path: DataPath, model: Model, grid: Sequence[LoaderSettings], *, num_batches: int, repeats: int
) -> Iterator[Trial]:
    """Measure every setting.

    The repeats of a setting do not follow each other at once: what else the machine does for a while then falls on all
    settings alike.
    """
    rounds = [[_measure_once(path, settings, model, num_batches) for settings in grid] for _ in range(repeats)]
    for settings, *measured in zip(grid, *rounds, strict=True):
        yield _summarize(settings, measured)


@dataclass(frozen=True, slots=True)
class _Measured:
    rate: float = 0.0
    wait_share: float = 0.0
    cpu_percent: float = 0.0
    worker_bytes: int = 0
    trouble: str = ""


def _measure_once(path: DataPath, settings: LoaderSettings, model: Model, num_batches: int) -> _Measured:
    batches, feed = path.open(settings)
    try:
        for batch in itertools.islice(batches, WARM_UP):
            model(batch)
        waited, cpu = 0.0, _cpu_seconds()
        begin = time.perf_counter()
        for _ in range(num_batches):
            started = time.perf_counter()
            batch = next(batches)
            waited += time.perf_counter() - started
            model(batch)
        seconds = time.perf_counter() - begin
        workers = len(feed.worker_processes)
        if workers < settings.num_workers:  # the log says what was short
            return _Measured(trouble=f"{settings.render()}: only {workers} could be started.")
        return _Measured(
            rate=num_batches / seconds,
            wait_share=waited / seconds,
            cpu_percent=100 * (_cpu_seconds() - cpu) / seconds,
            worker_bytes=(measure_worker_bytes(feed.worker_processes) or 0) * settings.num_workers,
        )
    except FeedError as error:
        return _Measured(trouble=str(error))
    finally:
        feed.close()


def _endless(loader: EpochLoader) -> Iterator[Any]:
    for epoch in itertools.count():
        loader.set_epoch(epoch)
        yield from loader


def _cpu_seconds() -> float:
    """Return the processor time of this process and of the workers that it has now."""
    total = time.process_time()
    for child in psutil.Process().children():
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def _summarize(settings: LoaderSettings, measured: Sequence[_Measured]) -> Trial:
    whole = [one for one in measured if not one.trouble]
    troubles = [one.trouble for one in measured if one.trouble]

    def middle(name: str) -> float:
        return float(median(getattr(one, name) for one in whole)) if whole else 0.0

    return Trial(
        num_workers=settings.num_workers,
        prefetch_factor=settings.prefetch_factor,
        batches_per_second=middle("rate"),
        wait_share=middle("wait_share"),
        cpu_percent=middle("cpu_percent"),
        worker_bytes=int(middle("worker_bytes")),
        crashes=len(troubles),
        trouble=troubles[0] if troubles else "",
    )


def choose_trial(trials: Sequence[Trial]) -> Trial | None:
    """Return the setting with the fewest workers, then the fewest batches ahead, among those as good as the best.

    Settings that crashed in any repeat are left out; `None` where all did.
    """
    whole = [trial for trial in trials if not trial.crashes]
    if not whole:
        return None
    best = max(trial.batches_per_second for trial in whole)
    good = [trial for trial in whole if trial.batches_per_second >= _GOOD_ENOUGH * best]
    return min(good, key=lambda trial: (trial.num_workers, trial.prefetch_factor))


def render_yaml(trial: Trial) -> str:
    """Return the settings as lines of YAML."""
    lines = [f"dataloader_num_workers: {trial.num_workers}"]
    if trial.num_workers:
        lines.append(f"dataloader_prefetch_factor: {trial.prefetch_factor}")
    return "\n".join(lines)


class StandIn:
    """Takes the time of a model without being one.

    Args:
        seconds: For each batch.
        computes: Keep the processor busy meanwhile, as a model on a CPU does; otherwise sleep, as a process does that
            waits for its GPU.
    """

    def __init__(self, seconds: float, *, computes: bool) -> None:
        self.seconds = seconds
        self.computes = computes
        self._matrix = torch.ones(128, 128) if computes else None

    def __call__(self, batch: Any) -> None:
        """Take the time."""
        if self._matrix is None:
            time.sleep(self.seconds)
            return
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            torch.mm(self._matrix, self._matrix)
