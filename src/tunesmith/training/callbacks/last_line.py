"""Logs the steps since the last line of the log when training ends, so that no step is missing from log and picture."""

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tunesmith.training.callbacks.interruption import Interruption


class LastLine(TrainerCallback):
    """Asks for a line at the last step, or where something stops training earlier.

    Not where a run is interrupted: the line that is due would then be split in two, and the log of the resumed run
    would not be that of an uninterrupted one.
    """

    def __init__(self, interruption: Interruption) -> None:
        self._interruption = interruption

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Log at the last step, before an evaluation that may be due."""
        if state.global_step >= state.max_steps:
            control.should_log = True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Log where training was stopped early; Trainer writes no second line for the same step."""
        if control.should_training_stop and self._interruption.step is None:
            control.should_log = True
