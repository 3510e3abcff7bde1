"""Settings of the run folder and its checkpoints; a part of the training group."""

from dataclasses import dataclass
from typing import Literal

from tunesmith.config.constraints import PathText, PositiveFloat, PositiveInt


@dataclass(frozen=True, kw_only=True)
class SavingSettings:
    """What is written, where and when."""

    output_dir: PathText | None = None
    """Folder for everything that the run writes. Required for training.

    A folder that holds checkpoints or results of another run is refused, unless `overwrite_output_dir` or
    `resume_from_checkpoint` is set."""

    overwrite_output_dir: bool = False
    """Write into an `output_dir` that is in use. Files of the earlier run with the same names are replaced."""

    save_strategy: Literal["no", "steps", "epoch", "best"] = "steps"
    """When checkpoints are written: never, every `save_steps`, after every epoch, or whenever the metric is best."""

    save_steps: PositiveFloat = 500
    """Optimizer steps between checkpoints; a value below 1 is a share of all steps."""

    save_total_limit: PositiveInt | None = None
    """Checkpoints that are kept; older ones are removed. The newest and the best always stay. All when not set."""

    save_only_model: bool = False
    """Write checkpoints without optimizer and random states. Smaller; training cannot be resumed from them."""

    resume_from_checkpoint: str | bool | None = None
    """Go on from a checkpoint: `true` takes the newest whole one in `output_dir`, a path takes that one.

    Where `output_dir` holds none, `true` starts at the beginning and says so, whatever else is in the folder.

    The resumed run ends with the same weights as an uninterrupted one."""
