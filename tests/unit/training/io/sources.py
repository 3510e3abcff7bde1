"""Data sets for tests of the feed: rows that are slow, that raise, that kill their process, or that never come."""

import os
import signal
import time

import numpy as np

from tunesmith.data.batches import Example
from tunesmith.training.io.feed import BatchFeed
from tunesmith.training.io.settings import LoaderPolicy, LoaderSettings


def example(row):
    ids = np.array([5, 6, 7], dtype=np.int32)
    return Example(input_ids=ids, trained_spans=np.array([1, 3], dtype=np.int32), row_id=row)


class Rows:
    """Row `n` is an example with that id, after `seconds`; in a worker, `trouble[n]` happens first."""

    def __init__(self, num_rows=64, seconds=0.0, trouble=None, flags=None):
        self.num_rows = num_rows
        self.seconds = seconds
        self.trouble = trouble or {}
        self.flags = flags

    def __len__(self):
        return self.num_rows

    def __getitem__(self, row):
        what = self.trouble.get(row)
        if what is not None and (self.flags is None or self._is_first(row)):
            what()
        if self.seconds:
            time.sleep(self.seconds)
        return example(row)

    def _is_first(self, row):
        """Trouble comes once only, over all processes, where there is a folder to note it in."""
        try:
            (self.flags / str(row)).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def hang():
    time.sleep(600)


def refuse():
    raise ValueError("the picture is broken")


def ids_of(rows):
    return [row["row_id"] for row in rows]


def plan_of(num_batches, size=2):
    return [list(range(number * size, (number + 1) * size)) for number in range(num_batches)]


def feed_of(dataset, workers=0, prefetch=2, **policy):
    settings = LoaderSettings(workers, prefetch)
    return BatchFeed(dataset, ids_of, LoaderPolicy(start=settings, **policy))


class Busy:
    """A device that is at work until it was asked some times, and then has been idle for a while."""

    def __init__(self, times=1 << 30, idle=0.0):
        self.times = times
        self.idle = idle

    def is_done(self):
        self.times -= 1
        return self.times < 0

    def idle_seconds(self):
        return self.idle
