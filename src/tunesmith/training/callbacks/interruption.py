"""Ends a run in good order when it is told to stop: Ctrl-C, a scheduler that needs the machine, a closed terminal."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tunesmith.runtime.ranks import is_started_by_torchrun
from tunesmith.runtime.stop_signals import find_stop_signals

logger = logging.getLogger(__name__)


class Interruption(TrainerCallback):
    """Finishes the step under way, saves a checkpoint and stops. A second Ctrl-C stops at once.

    Processes of one run must stop at the same step, or they wait for each other for ever; `agree` makes one decision
    of all of theirs.
    """

    def __init__(self, agree: Callable[[bool], bool], *, repeat_after_seconds: float = 1.0) -> None:
        """Make the callback.

        Args:
            agree: Makes one decision of those of all processes.
            repeat_after_seconds: A second Ctrl-C counts only after this time. A terminal sends one to every process,
                and torchrun passes its own on to the same processes again.
        """
        self._agree = agree
        self._repeat_after_seconds = repeat_after_seconds
        self._is_asked = False
        self._asked_at = 0.0
        self._previous: dict[int, Any] = {}
        # Killed, torchrun takes nobody along: the processes would go on unseen, and keep machine and folder.
        self._launcher = os.getppid() if is_started_by_torchrun() else None
        self.step: int | None = None
        """The step after which the run was stopped, `None` if it was not."""

    def is_asked_anywhere(self) -> bool:
        """Return whether any process was asked to stop, by now; all of them have to ask."""
        self._is_asked = self._agree(self._is_asked)
        return self._is_asked

    def request(self) -> None:
        """Ask for a stop after the step under way."""
        self._is_asked = True

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take over the signals; in a thread of a notebook server they cannot be and are left alone."""
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._handle) for number in find_stop_signals()}

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Stop here if any process was asked to."""
        if self._launcher not in (None, os.getppid()) and not self._is_asked:
            logger.warning("torchrun is gone: saving a checkpoint and stopping.")
            self.request()
        if not self.is_asked_anywhere() or state.global_step >= state.max_steps:
            return
        self.step = state.global_step
        # An evaluation that is due now still runs, or the log of the resumed run would lack it.
        control.should_save = True
        control.should_training_stop = True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Tell a true end of an epoch from a stop in the middle of it: Trainer calls this in both cases."""
        if self.step is None:
            return
        if float(state.epoch or 0.0).is_integer():
            control.should_save = True  # again, with what the evaluation of the epoch found
        else:
            control.should_evaluate = False
            control.should_save = False

    def release(self) -> None:
        """Give the signals back to whom they belonged."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._is_asked:
            if number == signal.SIGINT and now - self._asked_at > self._repeat_after_seconds:
                self.release()
                raise KeyboardInterrupt
            return
        self._is_asked, self._asked_at = True, now
        logger.warning(
            "%s: finishing this step, then saving a checkpoint. Press Ctrl-C again to stop at once.",
            signal.Signals(number).name,
        )
