"""The one stopwatch all contestants are measured with.

Every tool here trains with a subclass of `transformers.Trainer`, so all are watched at the same two places: a callback
sees steps end, and the method that hands the micro-batches of a step to the training loop tells what is in them.
"""

import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from transformers import TrainerCallback

from benchmarks.contestants.job import Job

LABEL_NOT_LEARNT = -100


@dataclass
class Meter:
    """Counts tokens and takes times while a trainer runs."""

    job: Job
    real_tokens: list[int] = field(default_factory=list)
    """Tokens of the rows in each step, padding not counted."""
    padded_tokens: list[int] = field(default_factory=list)
    """Positions the model computed in each step."""
    trained_tokens: list[int] = field(default_factory=list)
    """Positions with a label in each step."""
    clocks: list[tuple[float, float]] = field(default_factory=list)
    """Wall and CPU clock at the end of each step, in seconds."""
    losses: list[float] = field(default_factory=list)
    notes: dict[str, object] = field(default_factory=dict)

    def watch(self, trainer_class: type) -> None:
        """Count what every trainer of this class is given from now on, and have `StepClock` report here."""
        StepClock.meter = self
        original = trainer_class.get_batch_samples  # type: ignore[attr-defined]

        def counted(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(trainer, *args, **kwargs)
            self._count(result[0])
            return result

        trainer_class.get_batch_samples = counted  # type: ignore[attr-defined]

    def report(self) -> dict[str, object]:
        """Return what was measured. Steps within the warm-up count only for `first_step_seconds`."""
        first, last = self.job.warmup_steps, len(self.clocks)
        if last <= first:
            raise SystemExit(f"only {last} steps were run, which leaves none after {first} steps of warm-up")
        start_wall, start_cpu = self.clocks[first - 1]
        end_wall, end_cpu = self.clocks[-1]
        measured = slice(first, last)
        return {
            "steps": last - first,
            "tokens": sum(self.real_tokens[measured]),
            "padded_tokens": sum(self.padded_tokens[measured]),
            "trained_tokens": sum(self.trained_tokens[measured]),
            "wall_seconds": end_wall - start_wall,
            "cpu_seconds": end_cpu - start_cpu,
            "first_step_seconds": self.clocks[0][0] - process_start_time(),
            "peak_memory_bytes": peak_memory_bytes(),
            "losses": self.losses,
            **self.notes,
        }

    def print_report(self) -> None:
        """Print the measurements as the last line, where the runner looks for them."""
        sys.stdout.flush()
        print("\n" + json.dumps(self.report()), flush=True)

    def _count(self, micro_batches: list[dict[str, Any]]) -> None:
        if not micro_batches:
            return
        self.padded_tokens.append(sum(batch["input_ids"].numel() for batch in micro_batches))
        self.real_tokens.append(sum(_count_real(batch) for batch in micro_batches))
        self.trained_tokens.append(sum(self._count_learnt(batch) for batch in micro_batches))

    def _count_learnt(self, batch: dict[str, Any]) -> int:
        return int((batch["labels"] != LABEL_NOT_LEARNT).sum())


def _count_real(batch: dict[str, Any]) -> int:
    mask = batch.get("attention_mask")
    return int(batch["input_ids"].numel() if mask is None else (mask != 0).sum())


class StepClock(TrainerCallback):
    """Notes when steps end and what the loss was.

    It finds its meter on the class, since some tools create callbacks themselves and pass no arguments.
    """

    meter: ClassVar[Meter]

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Note what is trained."""
        self.meter.notes |= describe_model(model)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note the time."""
        self.meter.clocks.append((time.time(), time.process_time()))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Note the loss."""
        if logs and "loss" in logs:
            self.meter.losses.append(float(logs["loss"]))


def describe_model(model: Any) -> dict[str, object]:
    """Return the facts that must be equal for a comparison to be fair."""
    parameters = list(model.parameters())
    return {
        "trained_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        "parameter_types": sorted({str(p.dtype).removeprefix("torch.") for p in parameters}),
        "checkpointing_active": any(getattr(m, "gradient_checkpointing", False) for m in model.modules()),
        "attention": getattr(model.config, "_attn_implementation", "unknown"),
    }


def peak_memory_bytes() -> int:
    """Return the high-water mark of this process's resident memory.

    From `/proc`, since `getrusage` also remembers what the parent process held before the `exec`.
    """
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM line")


def process_start_time() -> float:
    """Return when this process was started, in seconds since the epoch."""
    ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[19])
    uptime = float(Path("/proc/uptime").read_text(encoding="utf-8").split()[0])
    return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")
