"""Where the time of a run goes: waiting for data, copying, forward, backward, optimizer, and all the rest.

Time is cut at the borders of the phases, so that the parts add up to the whole and nothing can hide between them. On a
CPU a border is a look at the clock. On a GPU the work of a phase is done later than it is asked for, so its borders are
events in the stream, which are read when a log line is due: nothing waits for the device only to measure it.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import torch

Phase = Literal["data", "copy", "forward", "backward", "optimizer", "other"]
"""`data` waits for a batch, `copy` moves it to the device, `other` logs, saves and waits for other processes."""

PHASES: tuple[Phase, ...] = get_args(Phase)
_ON_DEVICE: frozenset[Phase] = frozenset({"copy", "forward", "backward", "optimizer"})
DATA = PHASES.index("data")


class DeviceEvents(Protocol):
    """Marks in the work of a device."""

    def mark(self) -> Any:
        """Put a mark after the work that was asked for so far."""
        ...

    def find_seconds(self, first: Any, second: Any) -> float | None:
        """Return the time between two marks; `None` while the device has not come to the second one."""
        ...

    def release(self, event: Any) -> None:
        """Take back a mark that is not needed any more."""
        ...


class CudaEvents:
    """Events of the current CUDA stream, used over and over: making one costs more than recording it."""

    def __init__(self) -> None:
        self._free: list[torch.cuda.Event] = []

    def mark(self) -> torch.cuda.Event:
        """Record an event in the current stream."""
        event = self._free.pop() if self._free else _new_event()
        event.record()
        return event

    def find_seconds(self, first: torch.cuda.Event, second: torch.cuda.Event) -> float | None:
        """Return the time between two events, without waiting for the second."""
        is_past: bool = second.query()  # type: ignore[no-untyped-call]
        return first.elapsed_time(second) / 1000 if is_past else None

    def release(self, event: torch.cuda.Event) -> None:
        """Keep an event for another mark."""
        self._free.append(event)


def _new_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class TimeAccount:
    """Adds up the seconds of each phase in this process.

    Args:
        clock: Seconds, from anywhere.
        events: Marks in the work of the device; `None` where work is done when it is asked for.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, events: DeviceEvents | None = None) -> None:
        self._clock = clock
        self._events = events
        self._phase: Phase = "other"
        self._since = clock()
        self._mark: Any = None
        self._pending: deque[tuple[Phase, Any, Any]] = deque()
        self._seconds: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)

    def use_events(self, events: DeviceEvents | None) -> None:
        """Measure the phases of a device by its own marks from here on."""
        self._events = events

    @property
    def phase(self) -> Phase:
        """The phase under way."""
        return self._phase

    def enter(self, phase: Phase) -> None:
        """End the phase under way and begin another."""
        now = self._clock()
        ended = self._phase
        if self._events is None:
            self._seconds[ended] += now - self._since
        else:
            if ended not in _ON_DEVICE:
                self._seconds[ended] += now - self._since
            self._mark_border(ended, phase)
        self._phase, self._since = phase, now

    def _mark_border(self, ended: Phase, begun: Phase) -> None:
        assert self._events is not None
        if ended not in _ON_DEVICE and begun not in _ON_DEVICE:
            return
        mark = self._events.mark()
        if ended in _ON_DEVICE and self._mark is not None:
            self._pending.append((ended, self._mark, mark))
        self._mark = mark if begun in _ON_DEVICE else None

    def move(self, seconds: float, measured_as: Phase, was: Phase) -> None:
        """Count time for another phase than the one under way, in which its border cannot be seen."""
        self._seconds[measured_as] -= seconds
        self._seconds[was] += seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out what is not part of training, such as an evaluation."""
        self.enter("other")
        try:
            yield
        finally:
            self._phase, self._since = "other", self._clock()

    def restart(self) -> None:
        """Forget the time since the last border, for example while the model was being loaded."""
        self._since = self._clock()

    def take(self) -> list[float]:
        """Return the seconds of each phase since the last call, in the order of `PHASES`.

        What the device has not finished yet comes with the next call.
        """
        self.enter(self._phase)
        while self._pending:
            phase, first, second = self._pending[0]
            assert self._events is not None
            seconds = self._events.find_seconds(first, second)
            if seconds is None:
                break
            self._pending.popleft()
            self._seconds[phase] += seconds
            self._events.release(first)
            if second is not self._mark and (not self._pending or self._pending[0][1] is not second):
                self._events.release(second)
        taken = [self._seconds[phase] for phase in PHASES]
        self._seconds = dict.fromkeys(PHASES, 0.0)
        return taken


def find_events(device: torch.device) -> DeviceEvents | None:
    """Return how to mark the work of a device; `None` where work is done when it is asked for."""
    return CudaEvents() if device.type == "cuda" else None


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """Seconds of each phase in each process. Shape [processes][phases]."""

    seconds: Sequence[Sequence[float]]

    def shares(self) -> dict[Phase, float]:
        """Return the share of each phase, over all processes; the shares add up to 1 (to 0 where no time passed)."""
        sums = [sum(process[number] for process in self.seconds) for number in range(len(PHASES))]
        total = sum(sums) or 1.0
        return {phase: seconds / total for phase, seconds in zip(PHASES, sums, strict=True)}

    def longest_wait(self) -> tuple[float, int]:
        """Return the share of its time that the process waits for data which waits most, and its number."""
        shares = [process[DATA] / (sum(process) or 1.0) for process in self.seconds]
        most = max(range(len(shares)), key=shares.__getitem__)
        return shares[most], most

    @property
    def mean_seconds(self) -> float:
        """Seconds of all phases, mean over the processes."""
        return sum(map(sum, self.seconds)) / len(self.seconds)


def describe_times(times: PhaseTimes, num_steps: int) -> dict[str, float]:
    """Return what a line of the log says about the time since the last one: shares from 0 to 1, and seconds a step."""
    wait, process = times.longest_wait()
    numbers = {"data_wait_share": round(wait, 4)}
    if len(times.seconds) > 1:
        numbers["data_wait_process"] = process
    shares = times.shares()
    numbers.update({f"{phase}_share": round(share, 4) for phase, share in shares.items() if phase != "data"})
    numbers["step_seconds"] = round(times.mean_seconds / max(1, num_steps), 6)
    return numbers


def render_shares(numbers: Mapping[str, Any]) -> str | None:
    """Return the shares in a line of the log as a few words; `None` where it has none."""
    if "other_share" not in numbers:
        return None
    process = numbers.get("data_wait_process")
    who = "" if process is None else f" (process {process}, the most)"
    named = [f"data {numbers['data_wait_share']:.0%}{who}"]
    named += [f"{phase} {numbers[f'{phase}_share']:.0%}" for phase in PHASES if phase != "data"]
    return f"time: {', '.join(named)}"
