"""How many steps a run takes, and which rows no step takes."""

import math
from dataclasses import dataclass

from tunesmith.config import RunConfig
from tunesmith.errors import DataError
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.token_batches import TokenBatches
from tunesmith.training.loaders import count_batches


@dataclass(frozen=True, slots=True)
class Schedule:
    """The length of a run."""

    rows_per_step: int
    """Rows (or packs) of one optimiser step, over all processes."""

    steps_per_epoch: int | None
    """`None` where rows are streamed: nobody counts them."""

    total_steps: int
    rows_left_out: int
    """Rows (or packs) of each epoch that `dataloader_drop_last` leaves out; other ones each time rows are shuffled."""


def estimate_schedule(
    config: RunConfig, num_rows: int, ranks: Ranks, token_batches: TokenBatches | None = None
) -> Schedule:
    """Return the steps of a run from its number of rows and batch sizes.

    Args:
        config: Of the run.
        num_rows: Rows (or packs) to train on.
        ranks: All processes of the run.
        token_batches: The micro-batches where they go by tokens.

    Raises:
        DataError: Not one batch can be filled, and `dataloader_drop_last` leaves out what does not fill one.
    """
    training = config.training
    size, drop_last = training.batch_size, config.loading.dataloader_drop_last
    if token_batches is not None:
        return _schedule_of_tokens(config, num_rows, token_batches)
    per_process = count_batches(num_rows, size, ranks.world_size, drop_last=drop_last)
    if per_process == 0:
        raise DataError(_nothing_left(num_rows, size, ranks.world_size))
    steps = math.ceil(per_process / training.gradient_accumulation_steps)
    return Schedule(
        rows_per_step=size * training.gradient_accumulation_steps * ranks.world_size,
        steps_per_epoch=steps,
        total_steps=training.max_steps if training.max_steps > 0 else math.ceil(training.num_train_epochs * steps),
        rows_left_out=num_rows - per_process * size * ranks.world_size if drop_last else 0,
    )


def stream_schedule(config: RunConfig, ranks: Ranks) -> Schedule:
    """Return the steps of a run whose rows are read as they come; `max_steps` decides."""
    training = config.training
    return Schedule(
        rows_per_step=training.batch_size * training.gradient_accumulation_steps * ranks.world_size,
        steps_per_epoch=None,
        total_steps=training.max_steps,
        rows_left_out=0,
    )


def _schedule_of_tokens(config: RunConfig, num_rows: int, batches: TokenBatches) -> Schedule:
    training = config.training
    steps = math.ceil(len(batches) / training.gradient_accumulation_steps)
    return Schedule(
        rows_per_step=round(num_rows / max(1, steps)),
        steps_per_epoch=steps,
        total_steps=training.max_steps if training.max_steps > 0 else math.ceil(training.num_train_epochs * steps),
        rows_left_out=0,
    )


def _nothing_left(num_rows: int, size: int, num_processes: int) -> str:
    processes = f" on each of {num_processes} processes" if num_processes > 1 else ""
    fitting = num_rows // num_processes
    smaller = f"per_device_train_batch_size to {fitting} or less" if fitting else "fewer processes"
    return (
        f"dataloader_drop_last leaves out every row: a batch takes {size} (per_device_train_batch_size){processes}, "
        f"and there are {num_rows} to train on (a packed row counts as one). Set dataloader_drop_last: false, or "
        f"{smaller}."
    )
