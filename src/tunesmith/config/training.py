"""Settings of one run: what it does, how long, and (from its parts) how it learns, measures, saves and reports."""

from dataclasses import dataclass
from typing import Annotated

from tunesmith.config.constraints import PositiveFloat, Range
from tunesmith.config.evaluating import EvaluatingSettings
from tunesmith.config.lean_optimizers import LeanOptimizerSettings
from tunesmith.config.optimization import OptimizationSettings
from tunesmith.config.optimizers import IN_BACKWARD_ALONE
from tunesmith.config.saving import SavingSettings
from tunesmith.config.tracking import TrackingSettings


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(TrackingSettings, EvaluatingSettings, SavingSettings, LeanOptimizerSettings, OptimizationSettings):
    """One run from start to finish."""

    do_train: bool = False
    """Train. When not set: yes if `dataset` is given and neither `do_eval` nor `do_predict` is asked for."""

    do_eval: bool = False
    """Measure the model on the evaluation rows at the end (or, without `do_train`, only that)."""

    do_predict: bool = False
    """Generate answers for the evaluation rows at the end and write them to a file. Needs `predict_with_generate`."""

    num_train_epochs: PositiveFloat = 3.0
    """Times that every row is seen. Fractions are allowed. Ignored when `max_steps` is set, as the plan says."""

    max_steps: Annotated[int, Range(-1)] = -1
    """Optimizer steps of the run, whatever the number of rows; -1 goes by `num_train_epochs`."""

    use_cpu: bool = False
    """Train on the processor even if there is a GPU."""

    @property
    def backward_updater(self) -> str | None:
        """Setting that has each parameter updated during the backward pass, `None` where a step comes after it."""
        if self.optim in IN_BACKWARD_ALONE:
            return "optim"
        asked = {
            "optimizer_in_backward": self.optimizer_in_backward,
            "galore_layerwise": self.galore_layerwise,
            "apollo_layerwise": self.apollo_layerwise,
        }
        return next((key for key, is_on in asked.items() if is_on), None)
