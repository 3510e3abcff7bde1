"""Where a run goes on, its learning rate is that of its schedule."""

from typing import Any

from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class FollowSchedule(TrainerCallback):
    """Sets the learning rate of the first step after resuming.

    The rate is restored with the optimizer, as it was left: zero at the end of a run. If the run is made longer, its
    schedule is another from here on, and the first step would be taken at the old rate. Where nothing has changed, the
    schedule gives the very number that was restored.
    """

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        optimizer: Any = None,
        lr_scheduler: Any = None,
        **_: Any,
    ) -> None:
        """Compute the rates anew; schedules that depend on measurements keep what was restored."""
        if state.global_step == 0 or optimizer is None or lr_scheduler is None:
            return
        inner = vars(lr_scheduler).get("scheduler", lr_scheduler)  # accelerate wraps schedules
        if not isinstance(inner, LambdaLR):
            return
        rates = [base * factor(inner.last_epoch) for base, factor in zip(inner.base_lrs, inner.lr_lambdas, strict=True)]
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        inner._last_lr = rates  # what the log reads
