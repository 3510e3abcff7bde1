"""The log of a run as lines of JSON: `trainer_log.jsonl`, with the keys that LLaMA-Factory's tools read."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tunesmith.runtime.disk import name_failed_file
from tunesmith.runtime.files import write_text_atomic
from tunesmith.runtime.memory import peak_process_memory_bytes, process_memory_bytes
from tunesmith.training.monitoring.meter import RunMeter
from tunesmith.training.monitoring.pace import Pace, render_duration

logger = logging.getLogger(__name__)

LOG_FILE = "trainer_log.jsonl"
_BYTES_PER_GB = 1e9
_RENAMED = {"learning_rate": "lr"}
_LEFT_OUT = ("step", "total_flos")


class LogFile(TrainerCallback):
    """Writes one line per logging step and per evaluation, at once, so that a killed run keeps its log."""

    def __init__(self, path: Path, meter: RunMeter) -> None:
        self._path = path
        self._meter = meter
        self._pace = Pace()
        self._first_step = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Cut the log back to the step that training starts from."""
        self._pace.start(state.global_step)
        self._first_step = state.global_step
        self._meter.restart_clock()
        if state.is_world_process_zero:
            cut_log(self._path, state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append a line for a training loss or an evaluation; the summary at the end of training has its own file."""
        if not state.is_world_process_zero or not logs or not _is_measurement(logs):
            return
        line = self._build_line(state, logs)
        if 0 < state.global_step == self._first_step:  # the run that this one goes on with may have measured it, too
            remove_line(self._path, line)
        with name_failed_file(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def _build_line(self, state: TrainerState, logs: Mapping[str, Any]) -> dict[str, Any]:
        numbers = {_RENAMED.get(key, key): value for key, value in logs.items() if key not in _LEFT_OUT}
        done = state.global_step / state.max_steps if state.max_steps > 0 else 0.0
        line = {
            "current_steps": state.global_step,
            "total_steps": state.max_steps,
            **numbers,
            "epoch": round(float(numbers.get("epoch", state.epoch or 0.0)), 4),
            "percentage": round(100 * done, 2),
            "elapsed_time": render_duration(self._pace.elapsed_seconds),
            "remaining_time": render_duration(self._pace.remaining_seconds(state.global_step, state.max_steps)),
        }
        if "rewards/accuracies" in numbers:  # the name that LLaMA-Factory's board draws
            line["accuracy"] = numbers["rewards/accuracies"]
        if "loss" in line:
            line["throughput"] = round(self._meter.throughput, 2)
        return {**{name: _usable_number(value) for name, value in line.items()}, **measure_memory()}


def _usable_number(value: Any) -> Any:
    """Return `None` for what JSON cannot hold: gradients that overflow in fp16, a perplexity beyond all floats."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_measurement(logs: Mapping[str, Any]) -> bool:
    return "loss" in logs or any(key.startswith("eval_") and key.endswith("loss") for key in logs)


def cut_log(path: Path, step: int) -> None:
    """Remove what a log says about later steps, and a last line that was cut off by a kill.

    Args:
        path: The log; it need not exist. From step 0 it starts empty.
        step: Last step that stays.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        return
    kept = [line for line in read_log(path) if int(line["current_steps"]) <= step] if step > 0 else []
    _write_log(path, kept)


def remove_line(path: Path, line: Mapping[str, Any]) -> None:
    """Remove from a log what it says about the step of a line under the same names."""
    lines = read_log(path)
    kept = [each for each in lines if each["current_steps"] != line["current_steps"] or each.keys() != line.keys()]
    if len(kept) < len(lines):
        _write_log(path, kept)


def _write_log(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    write_text_atomic(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log, without a last one that was cut off."""
    lines: list[dict[str, Any]] = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            logger.warning("%s: left out a line that was not written to its end", path)
    return lines


def measure_memory() -> dict[str, float]:
    """Return memory in use and its peak in GB, of this process and of its accelerator where there is one."""
    current = process_memory_bytes()
    # The kernel counts the two apart and lazily, so that a peak may read as less than what is in use.
    peak = max(current, peak_process_memory_bytes())
    figures = {"memory_gb": current / _BYTES_PER_GB, "peak_memory_gb": peak / _BYTES_PER_GB}
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated() > 0:  # 0: this run leaves the GPU alone
        figures["device_memory_gb"] = torch.cuda.memory_allocated() / _BYTES_PER_GB
        figures["device_peak_memory_gb"] = torch.cuda.max_memory_allocated() / _BYTES_PER_GB
    return {name: round(value, 3) for name, value in figures.items()}
