"""Settings of what is shown and recorded; a part of the training group."""

from dataclasses import dataclass
from typing import Literal

from tunesmith.config.constraints import PathText, PositiveFloat, PositiveInt, Sentences

Tracker = Literal[
    "none",
    "all",
    "azure_ml",
    "clearml",
    "codecarbon",
    "comet_ml",
    "dagshub",
    "dvclive",
    "flyte",
    "kubeflow",
    "mlflow",
    "neptune",
    "swanlab",
    "tensorboard",
    "trackio",
    "wandb",
]


@dataclass(frozen=True, kw_only=True)
class TrackingSettings:
    """What is logged, drawn and sent to experiment trackers."""

    logging_steps: PositiveFloat = 500
    """Optimizer steps between log lines; a value below 1 is a share of all steps."""

    logging_first_step: bool = False
    """Log the first step as well."""

    logging_dir: PathText | None = None
    """Folder for TensorBoard's files; `runs` in `output_dir` when not set. Needs `report_to: tensorboard`."""

    report_to: tuple[Tracker, ...] = ("none",)
    """Experiment trackers that get the numbers, such as `tensorboard,wandb`. Each needs its own package."""

    run_name: str | None = None
    """Name of this run in the trackers that have names for runs; chosen by the tracker when not set."""

    project: str = "huggingface"
    """Project of this run in trackio. Other trackers take it from variables of their own, such as `WANDB_PROJECT`."""

    plot_loss: bool = False
    """Draw the run to `training_loss.png` when it ends or is interrupted.

    Loss, evaluation loss, learning rate and gradient norm over the steps."""

    include_effective_tokens_per_second: bool = False
    """Report the trained tokens per second of the whole run in its results."""

    callbacks: tuple[str, ...] = ()
    """Your own `transformers.TrainerCallback` classes, each as `package.module:Class`. Created without arguments."""

    sample_steps: PositiveInt | None = None
    """Print generated answers every so many optimizer steps. Costs the time of generating them."""

    sample_prompts: Sentences = ()
    """Questions for `sample_steps`. When empty, the first prompts of the evaluation or training rows."""
