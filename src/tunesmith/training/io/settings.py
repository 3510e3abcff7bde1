"""How batches are made ahead of time, and how much of that the run may settle by itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

from tunesmith.config.loading import LoadingConfig
from tunesmith.data.loading.datasets import ExampleDataset, PackedDataset

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


def resolve_policy(loading: LoadingConfig, device_type: str) -> LoaderPolicy:
    """Return the policy that the settings ask for.

    Args:
        loading: Settings; each of them a value or `auto`.
        device_type: Where the model computes, such as `cuda`.
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
    )


def describe_rows_of(dataset: Any, describe_source: Callable[[int], str]) -> DescribeRow:
    """Return what says of a row (or packed row) of a data set where it comes from.

    The row itself is not read: reading it may be what went wrong, and what has ended a worker would end the run.

    Args:
        dataset: Prepared rows, packed or not.
        describe_source: Tells it of a `row_id`.
    """

    def describe(index: int) -> str:
        if not isinstance(dataset, PackedDataset):
            return describe_source(int(dataset.row_ids[index]))
        pieces, rows = dataset.packs[index], cast("ExampleDataset", dataset.examples)
        first = describe_source(int(rows.row_ids[pieces[0].row]))
        return f"{first} (first of {len(pieces)} in a packed row)"

    return describe


def _is_on(choice: Literal["auto"] | bool) -> bool:
    """Pinning and keeping workers cost little and save time wherever they have an effect, so `auto` is yes."""
    return choice is not False
