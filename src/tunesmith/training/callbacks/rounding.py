"""The step from which a run trains for fewer bits."""

from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tunesmith.errors import ConfigError
from tunesmith.models.quantization.qat import CompressionScheme, start_rounding


class StartRounding(TrainerCallback):
    """Has the model round its weights from a step on, also in a run that is resumed after it."""

    def __init__(self, model: nn.Module, scheme: CompressionScheme, first_step: int) -> None:
        self._model = model
        self._scheme = scheme
        self._first_step = first_step
        self._is_rounding = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **options: Any
    ) -> None:
        """Begin at once where that is asked for, or where a resumed run had begun.

        Raises:
            ConfigError: The run is over before it would begin.
        """
        if self._first_step >= state.max_steps:
            raise ConfigError(
                f"qat_start_step is {self._first_step}, and the run has {state.max_steps} steps, so nothing would be "
                "rounded. Give an earlier step."
            )
        self._start(state)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **options: Any
    ) -> None:
        """Begin when the step is reached."""
        self._start(state)

    def _start(self, state: TrainerState) -> None:
        if not self._is_rounding and state.global_step >= self._first_step:
            start_rounding(self._model, self._scheme)
            self._is_rounding = True
