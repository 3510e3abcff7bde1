"""`per_device_train_batch_size: auto`: the largest micro-batch that fits, found by trying, for the same steps.

A step keeps its rows; only how many of them go through the model at once is found out. On a GPU what does not fit is an
error that can be caught. On a CPU it is the end of the process nearly everywhere, so the memory of each trial is
measured, and the next one is only begun if twice as much is free.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tunesmith.config import RunConfig
from tunesmith.config.optimization import DEFAULT_BATCH_SIZE
from tunesmith.data.batches import move_batch
from tunesmith.errors import TrainingError
from tunesmith.objectives.means import complete_step
from tunesmith.runtime.memory import available_memory_bytes, process_memory_bytes
from tunesmith.training.assembly import RunParts, build_run_collator
from tunesmith.training.io.halving import lack_of_memory_told, release_memory
from tunesmith.training.resume import ResumePoint

logger = logging.getLogger(__name__)

_SAMPLE_SECONDS = 0.005
_OPTIMIZER_BYTES = 8
"""Bytes for each trained weight that the optimizer will take and a trial does not: the two moments of Adam."""


def begin_small(config: RunConfig) -> RunConfig:
    """Return a configuration whose steps take the same rows one by one, where the batch size is to be found out.

    Rows of a step are `gradient_accumulation_steps` times 8 for each device, 8 being the batch size that is taken where
    none is given.
    """
    training = config.training
    if training.per_device_train_batch_size != "auto":
        return config
    if config.loading.tokens_per_device_batch is not None:  # micro-batches go by tokens
        return replace(config, training=replace(training, per_device_train_batch_size=DEFAULT_BATCH_SIZE))
    rows = DEFAULT_BATCH_SIZE * training.gradient_accumulation_steps
    return replace(config, training=replace(training, per_device_train_batch_size=1, gradient_accumulation_steps=rows))


def settle_batch_size(parts: RunParts, point: ResumePoint | None) -> RunConfig:
    """Return the configuration with the largest micro-batch that fits and as many of them as keep the step.

    Args:
        parts: Prepared for single rows, see `begin_small`.
        point: Checkpoint to go on from; its micro-batches are kept, since they decide the order of rows.

    Raises:
        TrainingError: Not even a single row fits.
    """
    rows_per_step = parts.config.training.gradient_accumulation_steps
    if point is not None:
        size = int(point.manifest.order["per_device_train_batch_size"])
    else:
        size = _agree(find_largest(divisors(rows_per_step), lambda size: _fits(parts, size)))
    if size < 1:
        raise TrainingError(
            "Not even one row of the longest fits into memory with its gradients and the optimizer. Lower cutoff_len, "
            "set gradient_checkpointing: true, or train fewer weights (LoRA, quantization)."
        )
    logger.info(
        "Batch size: %d rows at once, %d times a step, are the most that fit (per_device_train_batch_size: auto).",
        size,
        rows_per_step // size,
    )
    training = replace(
        parts.config.training, per_device_train_batch_size=size, gradient_accumulation_steps=rows_per_step // size
    )
    return replace(parts.config, training=training)


def divisors(number: int) -> list[int]:
    """Return what divides a number, ascending."""
    return [size for size in range(1, number + 1) if number % size == 0]


def find_largest(sizes: Sequence[int], fits: Callable[[int], bool]) -> int:
    """Return the last of ascending sizes before the first that does not fit; 0 if none fits."""
    largest = 0
    for size in sizes:
        if not fits(size):
            break
        largest = size
    return largest


def _agree(size: int) -> int:
    """Return the smallest of what the processes found."""
    if not torch.distributed.is_initialized():
        return size
    found: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(found, size)
    return int(min(found))


def _fits(parts: RunParts, size: int) -> bool:
    """Try a micro-batch of the longest rows, with room for what the optimizer will keep."""
    rows, device = parts.data.train, parts.arguments.device
    if rows is None or size > len(rows):
        return False
    longest = np.argsort(-np.asarray(rows.lengths), kind="stable")[:size].tolist()
    batch = build_run_collator(parts)([rows[row] for row in longest])
    optimizer_bytes = _OPTIMIZER_BYTES * sum(
        weight.numel() for weight in parts.loaded.model.parameters() if weight.requires_grad
    )
    try:
        with lack_of_memory_told():
            if device.type == "cpu":
                with _measured_growth() as growth:
                    _try_step(parts, batch)
                needed = growth.peak_bytes + optimizer_bytes
                logger.debug("%d rows take %.2f GB", size, needed / 1e9)
                return size == 1 or 2 * needed < available_memory_bytes()
            ballast = torch.empty(optimizer_bytes, dtype=torch.uint8, device=device)
            _try_step(parts, batch)
            del ballast
    except torch.OutOfMemoryError:
        return False
    finally:
        parts.loaded.model.zero_grad()
        release_memory(device)
    return True


def _try_step(parts: RunParts, batch: Mapping[str, Any]) -> None:
    model, device = parts.loaded.model, parts.arguments.device
    inputs = move_batch(batch, device)
    was_training = model.training
    # What is drawn for dropout here must not be missing from the run.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        model.train()
        with parts.loaded.precision.autocast(device):
            loss = parts.objective.compute(model, complete_step(parts.objective, model, inputs)).total
        loss.backward()  # type: ignore[no-untyped-call]
        model.zero_grad()
        model.train(was_training)


@dataclass(slots=True)
class _Growth:
    peak_bytes: int = 0


@contextmanager
def _measured_growth() -> Iterator[_Growth]:
    """Watch how much more memory this process holds while the block runs."""
    growth, before, is_done = _Growth(), process_memory_bytes(), threading.Event()

    def watch() -> None:
        while not is_done.wait(_SAMPLE_SECONDS):
            growth.peak_bytes = max(growth.peak_bytes, process_memory_bytes() - before)

    thread = threading.Thread(target=watch, name="memory of a trial", daemon=True)
    thread.start()
    try:
        yield growth
    finally:
        is_done.set()
        thread.join()
