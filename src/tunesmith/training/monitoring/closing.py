"""The words at the end of a run about whether its data came in time, and what would help."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tunesmith.training.io.bounds import Demand
from tunesmith.training.io.feed import BatchFeed
from tunesmith.training.io.tuner import HEADROOM, TARGET_WAIT
from tunesmith.training.monitoring.account import DATA, PhaseTimes


def render_feeding(
    times: PhaseTimes, session: PhaseTimes, feed: BatchFeed, process: int = 0, num_batches: int | None = None
) -> str:
    """Return a sentence about the time that a run waited for data.

    Args:
        times: Of the whole run.
        session: Those since this process began, which is what its feed has seen; a resumed run has earlier ones.
        feed: Of this process.
        process: Number of this process.
        num_batches: Batches that were made, where those of the feed are not the ones that are trained on.
    """
    record, workers = feed.record, feed.settings.num_workers
    own = session.seconds[process]
    rates = _Rates.find(own, record.batches if num_batches is None else num_batches, record.made_seconds)
    if rates is None:
        return f"{_waiting(times)}."
    parts = [_waiting(times), f"the loader {rates.render(workers)}", f"workers were {workers}{_chosen(feed)}"]
    if rates.is_short(own, workers):
        parts.append(_advise(feed, rates.needed))
    elif not feed.policy.tunes_workers and rates.needed < workers:
        parts.append(f"{rates.needed} would do" if rates.needed else "it would do without")
    return f"{'; '.join(parts)}."


@dataclass(frozen=True, slots=True)
class _Rates:
    """Batches a second: of one maker, and of the model."""

    made: float
    taken: float

    @classmethod
    def find(cls, own: Sequence[float], batches: int, made_seconds: float) -> "_Rates | None":
        """Return the rates of a process; `None` where nothing was made or taken."""
        model_seconds = sum(own) - own[DATA]
        if not batches or made_seconds <= 0 or model_seconds <= 0:
            return None
        return cls(batches / made_seconds, batches / model_seconds)

    def render(self, workers: int) -> str:
        return f"makes {_rate(self.made * max(1, workers))} batches/s and the model takes {_rate(self.taken)}"

    @property
    def needed(self) -> int:
        """Workers that would keep up; 0 where making batches takes next to no time beside the model's."""
        is_quick = self.taken / (self.made + self.taken) <= TARGET_WAIT
        return 0 if is_quick else math.ceil(self.taken / self.made * HEADROOM)

    def is_short(self, own: Sequence[float], workers: int) -> bool:
        """Return whether the process waited, and more workers would help."""
        return own[DATA] / sum(own) > TARGET_WAIT and self.needed > workers


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _waiting(times: PhaseTimes) -> str:
    share, longest = times.longest_wait()
    who = f" in process {longest}, which waited most" if len(times.seconds) > 1 else ""
    return f"Data waiting {share:.1%} of {render_minutes(times.mean_seconds)}{who}"


def _advise(feed: BatchFeed, needed: int) -> str:
    """Return whether so many workers would help: those that a machine has no room for would not."""
    bound = feed.find_bound(Demand(cpu_share=feed.record.made_cpu_seconds / feed.record.made_seconds))
    if needed <= bound.workers:
        return f"with {needed} it would keep up"
    return f"it would take {needed} to keep up, and the most here is {bound.workers} ({bound.reason})"


def render_minutes(seconds: float) -> str:
    """Return a duration as `14m02s`, or with hours or without minutes where that says it."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m{rest:02d}s"


def _chosen(feed: BatchFeed) -> str:
    if feed.policy.tunes_workers:
        return " at the end, as the run found out" if feed.record.changes else ", as the run found out"
    return " (dataloader_num_workers)"
