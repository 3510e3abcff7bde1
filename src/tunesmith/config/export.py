"""Settings of writing a finished model."""

from dataclasses import dataclass
from typing import Literal

from tunesmith.config.constraints import PathText, PositiveInt


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Where and how a merged model is written."""

    export_dir: PathText | None = None
    """Folder for the merged model. Required by `tunesmith export`."""

    export_size: PositiveInt = 5
    """Largest size of one weight file in gigabytes (10^9 bytes)."""

    export_device: Literal["cpu", "auto"] = "cpu"
    """Device that merges. `auto` uses a GPU where there is one: faster, and the model has to fit on it."""
