"""How long a run has gone on and how long it still takes."""

import time
from collections.abc import Callable
from datetime import timedelta


class Pace:
    """Time of this process in training; a resumed run counts from where it went on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._first_step = 0

    def start(self, step: int) -> None:
        """Begin to count; `step` optimiser steps were done before."""
        self._started = self._clock()
        self._first_step = step

    @property
    def elapsed_seconds(self) -> float:
        """Time since the start, evaluation and saving included."""
        return self._clock() - self._started

    def remaining_seconds(self, step: int, max_steps: int) -> float:
        """Return the time that the steps left take at the mean pace so far; 0 before the first step."""
        steps_here = step - self._first_step
        return self.elapsed_seconds / steps_here * (max_steps - step) if steps_here > 0 else 0.0


def render_duration(seconds: float) -> str:
    """Return whole seconds as h:mm:ss."""
    return str(timedelta(seconds=int(max(0.0, seconds))))
