"""The words at the end of a run about whether its data came in time, and what would help."""

import math

from tunesmith.training.io.bounds import Demand
from tunesmith.training.io.feed import BatchFeed
from tunesmith.training.io.tuner import HEADROOM, TARGET_WAIT
from tunesmith.training.monitoring.account import DATA, PhaseTimes


def render_feeding(times: PhaseTimes, feed: BatchFeed, process: int = 0) -> str:
    """Return a sentence about the time that a run waited for data.

    Args:
        times: Of the whole run.
        feed: Of this process.
        process: Number of this process.
    """
    parts = [_waiting(times)]
    own = times.seconds[process]
    record, settings = feed.record, feed.settings
    model_seconds = sum(own) - own[DATA]
    if record.batches and record.made_seconds > 0 and model_seconds > 0:
        made, taken = record.batches / record.made_seconds, record.batches / model_seconds
        parts.append(
            f"the loader makes {made * max(1, settings.num_workers):.3g} batches/s and the model takes {taken:.3g}"
        )
        parts.append(f"workers were {settings.num_workers}{_chosen(feed)}")
        needed = math.ceil(taken / made * HEADROOM)
        if own[DATA] / sum(own) > TARGET_WAIT and needed > settings.num_workers:
            parts.append(_advise(feed, needed))
    return f"{'; '.join(parts)}."


def render_streaming(times: PhaseTimes, num_workers: int) -> str:
    """Return a sentence about the time that a run waited for rows that it read on the way."""
    return f"{_waiting(times)}; workers were {num_workers}."


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
