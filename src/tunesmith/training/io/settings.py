"""How batches are made ahead of time, and how much of that the run may settle by itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tunesmith.config.loading import LoadingConfig
from tunesmith.data.pipeline import PreparedData

DEFAULT_PREFETCH = 2
"""Batches that each worker makes ahead where nobody says otherwise, as in PyTorch."""

DescribeRow = Callable[[int], str]
"""Number of a row in the data set -> where it comes from."""


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """How batches are made at one time of a run."""

    num_workers: int = 0
    """Processes that make batches; 0 makes each in the training process when it is asked for."""

    prefetch_factor: int = DEFAULT_PREFETCH
    """Batches that each worker makes ahead."""

    def render(self) -> str:
        """Return the settings in words."""
        if not self.num_workers:
            return "no workers"
        plural = "" if self.num_workers == 1 else "s"
        return f"{self.num_workers} worker{plural}, {self.prefetch_factor} batches ahead each"


@dataclass(frozen=True, slots=True)
class LoaderPolicy:
    """What is fixed and what is found out while the run goes on."""

    start: LoaderSettings = LoaderSettings()
    tunes_workers: bool = False
    tunes_prefetch: bool = False
    pins_memory: bool = False
    """Make batches in page-locked memory, from which a GPU copies faster."""

    keeps_workers: bool = True
    """Keep the workers from one epoch to the next."""

    max_restarts: int = 2
    """How often the loader is built again after a worker died or a row could not be made."""

    timeout_seconds: float | None = None
    """After how long without a batch the stacks of all processes are printed and the workers replaced."""

    describe_row: DescribeRow = "row {}".format

    @property
    def tunes(self) -> bool:
        """Whether anything is found out."""
        return self.tunes_workers or self.tunes_prefetch


def resolve_policy(
    loading: LoadingConfig, device_type: str, describe_row: DescribeRow = "row {}".format
) -> LoaderPolicy:
    """Return the policy that the settings ask for.

    Args:
        loading: Settings; each of them a value or `auto`.
        device_type: Where the model computes, such as `cuda`.
        describe_row: For messages.
    """
    workers, prefetch = loading.dataloader_num_workers, loading.dataloader_prefetch_factor
    return LoaderPolicy(
        start=LoaderSettings(
            0 if workers == "auto" else workers, DEFAULT_PREFETCH if prefetch in ("auto", None) else int(prefetch)
        ),
        tunes_workers=workers == "auto",
        tunes_prefetch=prefetch == "auto" and workers != 0,
        pins_memory=device_type == "cuda" and _is_on(loading.dataloader_pin_memory),
        keeps_workers=_is_on(loading.dataloader_persistent_workers),
        max_restarts=loading.dataloader_restarts,
        timeout_seconds=loading.data_timeout_seconds or None,
        describe_row=describe_row,
    )


def describe_rows_of(data: PreparedData) -> DescribeRow:
    """Return what says of a row (or packed row) of the training set where it comes from."""

    def describe(index: int) -> str:
        found = data.train[index] if data.train is not None and index < len(data.train) else None
        if found is None:
            return f"row {index}"
        if isinstance(found, list):
            return f"{data.describe_row(found[0]['row_id'])} (first of {len(found)} in a packed row)"
        return data.describe_row(found["row_id"])

    return describe


def _is_on(choice: Literal["auto"] | bool) -> bool:
    """Pinning and keeping workers cost little and save time wherever they have an effect, so `auto` is yes."""
    return choice is not False
