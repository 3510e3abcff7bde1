"""Settings of writing a finished model."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tunesmith.config.constraints import PathText, PositiveInt, Range

AdapterCombination = Literal[
    "in_turn",
    "linear",
    "cat",
    "svd",
    "ties",
    "ties_svd",
    "dare_linear",
    "dare_linear_svd",
    "dare_ties",
    "dare_ties_svd",
    "magnitude_prune",
    "magnitude_prune_svd",
]


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Where and how a merged model is written."""

    export_dir: PathText | None = None
    """Folder for the merged model. Required by `tunesmith export`."""

    export_size: PositiveInt = 5
    """Largest size of one weight file in gigabytes (10^9 bytes)."""

    adapter_combination: AdapterCombination = "in_turn"
    """How several adapters become one model. `in_turn` merges each into the result of the one before.

    The others are peft's ways to put LoRA adapters of the same base together: `cat` is their exact weighted sum, `svd`
    the best one of the largest rank; `ties`, `dare_linear`, `dare_ties` and `magnitude_prune` leave out small or random
    parts first, so that adapters disturb each other less. `linear` sums the factors themselves and is a rough guess.
    Kinds without `_svd` need adapters of the same rank."""

    adapter_weights: tuple[float, ...] = ()
    """Weight of each adapter in `adapter_combination`, in their order; 1 for all when not set."""

    adapter_density: Annotated[float, Range(0, 1, low_open=True)] = 0.5
    """Share of each adapter's values that `ties`, `dare_linear`, `dare_ties` and `magnitude_prune` keep."""

    export_device: Literal["cpu", "auto"] = "cpu"
    """Device that merges. `auto` uses a GPU where there is one: faster, and the model has to fit on it."""

    quantize: bool = False
    """Write the weights compressed, in the scheme of `qat`.

    Where `qat` is not set, the scheme is the one that the model or its adapter was trained with."""
