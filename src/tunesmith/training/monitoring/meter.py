"""Adds up what happens between two log lines: loss, tokens, waiting and computing.

Everything that a log line says about training comes from here, and all of it can be saved with a checkpoint, so that a
resumed run writes the lines that an uninterrupted one would have written.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tunesmith.objectives.means import RunningMeans
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.monitoring.account import DATA, PHASES, PhaseTimes, TimeAccount


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What one optimiser step works on, over all processes."""

    items: int
    """What the loss is summed over and divided by."""

    real_tokens: int
    """Tokens of rows."""

    computed_tokens: int
    """Tokens that the model sees, padding included."""


@dataclass(frozen=True, slots=True)
class WindowReport:
    """Means since the last log line."""

    loss: float
    tokens_per_second: float
    padded_tokens_per_second: float
    times: PhaseTimes
    """Where the time of each process went, saving included."""

    num_steps: int


class RunMeter:
    """Sums of this process; the loss is the part of this process in the mean over all."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter, ranks: Ranks | None = None) -> None:
        self._clock = clock
        self._ranks = ranks or Ranks()
        self.account = TimeAccount(clock)
        """Where the time goes; whoever does something says so here."""

        self.phase_seconds = PhaseTimes([[0.0] * len(PHASES)] * self._ranks.world_size)
        """Seconds of each phase in each process over the whole run, until the last log line."""

        self.session_phase_seconds = self.phase_seconds
        """Those since this process started training; a resumed run has earlier ones."""

        self.means = RunningMeans()
        """What the objective gives beside the loss, since the last log line."""

        self.window_loss: Tensor | float = 0.0
        self.window_steps = 0
        self.run_loss = 0.0
        self.run_steps = 0
        self.items = 0
        self.real_tokens = 0
        self.computed_tokens = 0
        self.busy_seconds = 0.0
        """Seconds of training in all earlier parts of this run and until the last log line, without pauses."""
        self._window_tokens = (0, 0)
        self._window_start = clock()
        self._session_tokens = 0
        self._session_seconds = 0.0

    def restart_clock(self) -> None:
        """Forget the time since the last log line, for example while the model was being loaded."""
        self._window_start = self._clock()
        self.account.restart()

    def add_pause(self, seconds: float) -> None:
        """Leave out time that is not training: evaluation, saving."""
        self._window_start += seconds

    def add_step(self, counts: StepCounts) -> None:
        """Count the tokens of an optimiser step, over all processes."""
        self.items += counts.items
        self.real_tokens += counts.real_tokens
        self.computed_tokens += counts.computed_tokens
        real, computed = self._window_tokens
        self._window_tokens = (real + counts.real_tokens, computed + counts.computed_tokens)
        self.window_steps += 1

    def add_loss(self, loss: Tensor) -> None:
        """Add a micro-batch's part of its step's mean loss; stays on its device. Shape []."""
        self.window_loss = self.window_loss + loss

    def close_window(self, reduce_sum: Callable[[Tensor], Tensor], device: torch.device) -> WindowReport:
        """Return the means since the last call and start anew.

        Args:
            reduce_sum: Adds a tensor up over all processes; the identity for one process.
            device: Where the sum over processes is made.
        """
        seconds = max(self._clock() - self._window_start, 1e-9)
        own = torch.zeros(self._ranks.world_size, len(PHASES), dtype=torch.float32)
        own[self._ranks.rank] = torch.tensor(self.account.take())
        window_loss = torch.as_tensor(self.window_loss, dtype=torch.float32, device=device).reshape(1)
        loss, *flat = reduce_sum(torch.cat([window_loss, own.flatten().to(device)])).tolist()
        times = PhaseTimes([flat[at : at + len(PHASES)] for at in range(0, len(flat), len(PHASES))])
        steps = max(1, self.window_steps)
        real, computed = self._window_tokens
        report = WindowReport(
            loss=loss / steps,
            tokens_per_second=real / seconds,
            padded_tokens_per_second=computed / seconds,
            times=times,
            num_steps=steps,
        )
        self.run_loss += loss
        self.run_steps += self.window_steps
        self.phase_seconds = _added(self.phase_seconds, times)
        self.session_phase_seconds = _added(self.session_phase_seconds, times)
        self.busy_seconds += seconds
        self._session_tokens += real
        self._session_seconds += seconds
        self.window_loss, self.window_steps = 0.0, 0
        self._window_tokens = (0, 0)
        self._window_start = self._clock()
        return report

    @property
    def mean_loss(self) -> float:
        """Mean loss per step over the whole run, earlier parts of a resumed one included."""
        return self.run_loss / max(1, self.run_steps)

    @property
    def throughput(self) -> float:
        """Real tokens per second since this process started training."""
        return self._session_tokens / max(self._session_seconds, 1e-9)

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs to go on counting."""
        return {
            "window_loss": float(self.window_loss),
            "window_steps": self.window_steps,
            "window_tokens": list(self._window_tokens),
            "run_loss": self.run_loss,
            "run_steps": self.run_steps,
            "items": self.items,
            "real_tokens": self.real_tokens,
            "computed_tokens": self.computed_tokens,
            "phase_seconds": [list(process) for process in self.phase_seconds.seconds],
            "busy_seconds": self.busy_seconds,
            "means": self.means.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned, in another process."""
        real, computed = state["window_tokens"]
        self._window_tokens = (int(real), int(computed))
        self.window_loss, self.window_steps = float(state["window_loss"]), int(state["window_steps"])
        self.run_loss, self.run_steps = float(state["run_loss"]), int(state["run_steps"])
        self.items = int(state["items"])
        self.real_tokens, self.computed_tokens = int(state["real_tokens"]), int(state["computed_tokens"])
        self.busy_seconds = float(state["busy_seconds"])
        self.means.load_state(state["means"])
        self.phase_seconds = PhaseTimes([list(map(float, process)) for process in state["phase_seconds"]])

    @property
    def wait_seconds(self) -> float:
        """Seconds that this process waited for data over the whole run, until the last log line."""
        return self.phase_seconds.seconds[self._ranks.rank][DATA]


def _added(first: PhaseTimes, second: PhaseTimes) -> PhaseTimes:
    pairs = zip(first.seconds, second.seconds, strict=True)
    return PhaseTimes([[one + other for one, other in zip(*processes, strict=True)] for processes in pairs])


def count_real_tokens(batch: Mapping[str, Any]) -> int:
    """Return the number of tokens in a batch that are not padding."""
    if "attention_mask" in batch:
        return int(batch["attention_mask"].sum())
    return int(batch["input_ids"].numel())
