"""The progress of a run for a person: a bar on a terminal, plain lines anywhere else."""

import logging
import sys
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tunesmith.training.monitoring.account import render_shares
from tunesmith.training.monitoring.log import measure_memory
from tunesmith.training.monitoring.meter import RunMeter
from tunesmith.training.monitoring.pace import Pace, render_duration

logger = logging.getLogger(__name__)


class Progress(TrainerCallback):
    """Shows step, loss, tokens per second and the time left; each evaluation gets a line of its own."""

    def __init__(self, meter: RunMeter, *, is_terminal: bool | None = None) -> None:
        self._meter = meter
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._bar: Any = None
        self._pace = Pace()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Draw the bar, from the step that training starts from."""
        self._pace.start(state.global_step)
        if state.is_world_process_zero and self._is_terminal:
            self._bar = tqdm(
                total=state.max_steps, initial=state.global_step, unit="step", dynamic_ncols=True, desc="train"
            )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Move the bar on."""
        if self._bar is not None:
            self._bar.update(state.global_step - self._bar.n)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Show the newest numbers: beside the bar, or as a line."""
        if not state.is_world_process_zero or not logs:
            return
        if "loss" in logs:
            if self._bar is not None:
                waiting = f", {logs['data_wait_share']:.0%} waiting for data" if "data_wait_share" in logs else ""
                self._bar.set_postfix_str(
                    f"loss {logs['loss']:.4f}, {logs.get('tokens_per_second', 0.0):,.0f} tokens/s{waiting}",
                    refresh=False,
                )
            else:
                logger.info("%s", render_step(state, logs, self._pace, measure_memory()))
            return
        measured = {key: value for key, value in logs.items() if key.startswith("eval_") and _is_worth_showing(key)}
        if measured:
            numbers = ", ".join(
                f"{key} {value:.4f}" if isinstance(value, float) else f"{key} {value}"
                for key, value in measured.items()
            )
            logger.info("step %d: %s", state.global_step, numbers)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave the bar as it stands."""
        self.close()

    def close(self) -> None:
        """Take the bar off, also when a run ends by an error."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _is_worth_showing(key: str) -> bool:
    return not key.endswith(("runtime", "per_second"))


def render_step(state: TrainerState, logs: Mapping[str, Any], pace: Pace, memory: Mapping[str, float]) -> str:
    """Return the line of a logging step.

    Args:
        state: How far training is.
        logs: What was measured.
        pace: How long it took.
        memory: See `measure_memory`; that of the accelerator is shown where there is one.
    """
    step, max_steps = state.global_step, state.max_steps
    share = f" ({step / max_steps:.0%})" if max_steps > 0 else ""
    parts = [f"step {step}/{max_steps}{share}", f"loss {logs['loss']:.4f}"]
    accuracy = logs.get("rewards/accuracies", logs.get("accuracy"))
    if accuracy is not None:
        parts.append(f"accuracy {accuracy:.2f}")
    if "learning_rate" in logs:
        parts.append(f"lr {logs['learning_rate']:.2e}")
    if "grad_norm" in logs:
        parts.append(f"grad norm {logs['grad_norm']:.2f}")
    if "tokens_per_second" in logs:
        real, padded = logs["tokens_per_second"], logs.get("padded_tokens_per_second", 0.0)
        parts.append(f"{real:,.0f} tokens/s" + (f" ({padded:,.0f} with padding)" if padded > real else ""))
    where = "device_" if "device_memory_gb" in memory else ""
    parts.append(f"{memory[f'{where}memory_gb']:.2f} GB (peak {memory[f'{where}peak_memory_gb']:.2f})")
    if "epoch" in logs:
        parts.append(f"epoch {logs['epoch']:.2f}")
    shares = render_shares(logs)
    if shares is not None:
        parts.append(shares)
    left = render_duration(pace.remaining_seconds(step, max_steps))
    parts.append(f"{render_duration(pace.elapsed_seconds)} gone, {left} left")
    return "  ".join(parts)
