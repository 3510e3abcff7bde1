"""Decides from measurements how many workers a run needs; knows nothing about processes and makes none.

It begins without workers. If making batches takes next to no time, that stays so. Otherwise the time that a batch takes
to make and the time that the model takes for it give the least number that keeps up. Every change is on trial: what
does not make the run faster is taken back, and not tried again until the work has changed. Workers that have nothing to
do for a while are given back.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from tunesmith.training.io.bounds import Bound, Demand
from tunesmith.training.io.settings import LoaderSettings

TARGET_WAIT = 0.02
"""Share of the time that a run may wait for data without anything being done about it."""

HEADROOM = 1.15
"""Workers are chosen so that they could make this many times the batches that the model takes."""

_LEAST_GAIN = 1.03
"""A change that speeds the run up by less is taken back."""

_WORTH_SENDING_SECONDS = 0.002
"""A batch that takes less to make is made as fast as it is received from another process."""

_PATIENCE = 2
"""Windows in a row that have to wait before a loader with workers is changed."""

_IDLE_WINDOWS = 5
"""Windows in a row with workers to spare before some are given back."""

_MOST_PREFETCH = 16
_CHANGED_WORK = 1.3
"""A ceiling is forgotten when the work per batch, or what comes of it, has changed by this factor."""

FindBound = Callable[[Demand], Bound]


@dataclass(frozen=True, slots=True)
class Taken:
    """What one batch took."""

    waited: float
    """Seconds that the training process waited for it."""

    elapsed: float
    """Seconds since the batch before was handed over: the model's time and this wait."""

    made: float
    """Seconds that making it took, wherever it was made."""

    made_cpu: float
    """Processor seconds of that."""


@dataclass(frozen=True, slots=True)
class Change:
    """What the loader should be from the next batch on."""

    settings: LoaderSettings
    reason: str


@dataclass(slots=True)
class Window:
    """Sums over some batches."""

    batches: int = 0
    waited: float = 0.0
    elapsed: float = 0.0
    made: float = 0.0
    made_cpu: float = 0.0
    process_cpu: float = 0.0
    least_waited: float = math.inf
    """What the batch took that came fastest."""

    def add(self, taken: Taken) -> None:
        """Add one batch."""
        self.batches += 1
        self.least_waited = min(self.least_waited, taken.waited)
        self.waited += taken.waited
        self.elapsed += taken.elapsed
        self.made += taken.made
        self.made_cpu += taken.made_cpu

    @property
    def wait_share(self) -> float:
        """Share of the time spent waiting."""
        return self.waited / max(self.elapsed, 1e-9)

    @property
    def late_share(self) -> float:
        """Share of the time by which batches came later than workers can send them: what every one takes stays."""
        sending = self.batches * min(self.least_waited, _WORTH_SENDING_SECONDS)
        return (self.waited - sending) / max(self.elapsed, 1e-9)

    @property
    def rate(self) -> float:
        """Batches a second."""
        return self.batches / max(self.elapsed, 1e-9)

    @property
    def made_seconds(self) -> float:
        """Seconds that a batch takes to make."""
        return self.made / max(1, self.batches)

    @property
    def model_seconds(self) -> float:
        """Seconds that the model takes for a batch."""
        return max(self.elapsed - self.waited, 1e-9) / max(1, self.batches)

    @property
    def demand(self) -> float:
        """Workers that would make exactly as many batches as the model takes."""
        return self.made_seconds / self.model_seconds


@dataclass(frozen=True, slots=True)
class _Trial:
    before: LoaderSettings
    rate: float
    wait_share: float
    demand: float
    kind: Literal["grow", "deepen", "shrink"]


@dataclass(frozen=True, slots=True)
class _Ceiling:
    """More workers than this made nothing faster, at the demand and rate of that time."""

    workers: int
    demand: float
    rate: float

    def is_outdated(self, window: Window) -> bool:
        """Return whether the work has changed since, so that it may be tried again."""
        changes = (window.demand / max(self.demand, 1e-9), window.rate / max(self.rate, 1e-9))
        return any(not 1 / _CHANGED_WORK < change < _CHANGED_WORK for change in changes)


@dataclass(slots=True)
class Tuner:
    """Watches a run and says when its loader should change.

    Args:
        settings: What the run begins with.
        find_bound: Most workers for what is known about them.
        tunes_workers: Whether their number may change.
        tunes_prefetch: Whether the number of batches ahead may change.
        batches_per_step: Micro-batches of an optimizer step, which are fetched together.
        window_seconds: Least length of a window.
    """

    settings: LoaderSettings
    find_bound: FindBound
    tunes_workers: bool = True
    tunes_prefetch: bool = True
    batches_per_step: int = 1
    window_seconds: float = 0.5
    cpu_clock: Callable[[], float] = time.process_time
    window: Window = field(default_factory=Window)
    _skip: int = 1
    """Batches that are not looked at: the first is slow for reasons of its own."""

    _cpu_since: float | None = None
    _trial: _Trial | None = None
    _late: int = 0
    _idle: int = 0
    _ceiling: "_Ceiling | None" = None

    _floor: int = 0
    _prefetch_ceiling: int = _MOST_PREFETCH

    def restart(self, settings: LoaderSettings) -> None:
        """Begin anew with a loader that was changed for another reason."""
        self.settings = settings
        self._trial, self._late, self._idle = None, 0, 0
        self._start_window(skip=True)

    def observe(self, taken: Taken) -> Change | None:
        """Take note of a batch, and return a change where one is due."""
        if self._cpu_since is None:
            self._cpu_since = self.cpu_clock()
        if self._skip:
            self._skip -= 1
            if not self._skip:
                self._cpu_since = self.cpu_clock()
            return None
        self.window.add(taken)
        least = self.batches_per_step * max(2, math.ceil(8 / self.batches_per_step))
        if not self.settings.num_workers:
            least = self.batches_per_step * max(2, math.ceil(4 / self.batches_per_step))
        window = self.window
        if window.batches < least or window.batches % self.batches_per_step or window.elapsed < self.window_seconds:
            return None
        window.process_cpu = self.cpu_clock() - self._cpu_since
        change = self._judge(window) if self._trial is not None else None
        change = change or self._decide(window)
        if change is not None:
            self.settings = change.settings
        self._start_window(skip=change is not None)
        return change

    def _start_window(self, *, skip: bool) -> None:
        self.window = Window()
        # Batches made before a change say nothing about what came of it.
        ahead = self.settings.num_workers * self.settings.prefetch_factor
        self._skip = max(self.batches_per_step, min(ahead, 32)) if skip else 0
        self._cpu_since = self.cpu_clock()

    def _judge(self, window: Window) -> Change | None:
        trial, self._trial = self._trial, None
        assert trial is not None
        if trial.kind == "shrink":
            if window.wait_share <= max(TARGET_WAIT, trial.wait_share) and window.rate * _LEAST_GAIN >= trial.rate:
                return None
            self._floor = trial.before.num_workers
            return Change(trial.before, f"with {self.settings.render()} {_waits(window)}")
        if window.rate >= trial.rate * _LEAST_GAIN or (
            window.wait_share <= TARGET_WAIT < trial.wait_share and window.rate >= trial.rate
        ):
            return None
        if trial.kind == "deepen":
            self._prefetch_ceiling = trial.before.prefetch_factor
        else:
            # The demand as it was before: workers that share too few processors take longer, each more than the last.
            self._ceiling = _Ceiling(trial.before.num_workers, trial.demand, trial.rate)
        return Change(
            trial.before,
            f"{self.settings.render()} made the run no faster ({window.rate:.3g} batches/s, {trial.rate:.3g} before)",
        )

    def _decide(self, window: Window) -> Change | None:
        ceiling = self._ceiling
        if ceiling is not None and self.settings.num_workers == ceiling.workers and ceiling.is_outdated(window):
            self._ceiling = None
        if (window.late_share if self.settings.num_workers else window.wait_share) > TARGET_WAIT:
            self._late, self._idle = self._late + 1, 0
            patience = _PATIENCE if self.settings.num_workers else 1
            return self._grow(window) if self._late >= patience else None
        self._late = 0
        return self._give_back(window)

    def _grow(self, window: Window) -> Change | None:
        now = self.settings
        if not now.num_workers and window.made_seconds < _WORTH_SENDING_SECONDS:
            return None
        needed = max(1, math.ceil(window.demand * HEADROOM))
        if now.num_workers and needed <= now.num_workers:
            deeper = self._deepen(window)
            if deeper is not None:
                return deeper
        if not self.tunes_workers:
            return None
        target = needed if not now.num_workers else max(needed, now.num_workers + 1)
        bound = self.find_bound(self._demand(window))
        if self._ceiling is not None and self._ceiling.workers < bound.workers:
            bound = Bound(self._ceiling.workers, "more made nothing faster")
        number = min(target, bound.workers)
        if number <= now.num_workers:
            return None
        limited = f"; {target} are wanted, {number} is the most ({bound.reason})" if number < target else ""
        reason = (
            f"{_waits(window)}: a batch takes {_time(window.made / window.batches)} to make and "
            f"{_time(window.model_seconds)} to learn from{limited}"
        )
        return self._change(replace(now, num_workers=number), "grow", window, reason)

    def _deepen(self, window: Window) -> Change | None:
        deeper = min(2 * self.settings.prefetch_factor, self._prefetch_ceiling)
        if not self.tunes_prefetch or deeper <= self.settings.prefetch_factor:
            return None
        reason = f"{_waits(window)}, although the workers make enough on average: batches take uneven times to make"
        return self._change(replace(self.settings, prefetch_factor=deeper), "deepen", window, reason)

    def _give_back(self, window: Window) -> Change | None:
        now = self.settings.num_workers
        alone = window.made / max(window.made + window.elapsed - window.waited, 1e-9)
        is_quick = alone <= TARGET_WAIT or window.made_seconds < _WORTH_SENDING_SECONDS
        needed = 0 if is_quick else max(1, math.ceil(window.demand * HEADROOM))
        needed = max(needed, self._floor)
        if not self.tunes_workers or needed >= now:
            self._idle = 0
            return None
        self._idle += 1
        if self._idle < _IDLE_WINDOWS:
            return None
        busy = window.made / max(now * window.elapsed, 1e-9)
        reason = f"the workers are busy {busy:.0%} of the time"
        return self._change(replace(self.settings, num_workers=needed), "shrink", window, reason)

    def _change(
        self, settings: LoaderSettings, kind: Literal["grow", "deepen", "shrink"], window: Window, reason: str
    ) -> Change:
        self._trial = _Trial(self.settings, window.rate, window.wait_share, window.demand, kind)
        self._late = self._idle = 0
        return Change(settings, reason)

    def _demand(self, window: Window) -> Demand:
        in_process = window.made_cpu if not self.settings.num_workers else 0.0
        model_seconds = max(window.elapsed - window.waited, 1e-9)
        return Demand(
            cpu_share=window.made_cpu / max(window.made, 1e-9),
            model_cpus=max(0.0, window.process_cpu - in_process) / model_seconds,
        )


def _waits(window: Window) -> str:
    return f"the run waits {window.wait_share:.0%} of its time for data"


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
