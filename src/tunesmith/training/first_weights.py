"""First weights of an adapter that are computed when a run begins."""

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from tunesmith.data.batches import move_batch
from tunesmith.models.adapters.begin import FROM_DATA, Batch, compute_first_weights, needs_first_weights
from tunesmith.models.locations import resolve_with_adapters
from tunesmith.models.stored_weights import StoredWeights, find_folder
from tunesmith.objectives.means import complete_step
from tunesmith.training.assembly import RunParts, build_run_collator

logger = logging.getLogger(__name__)

_NUM_BATCHES = 8
"""Batches that data-driven ways to begin look at; their authors use that order of magnitude."""


def begin_adapter(parts: RunParts) -> None:
    """Compute the first weights of a new adapter where `init_lora_weights` asks for it; nothing else otherwise.

    A run that is resumed gets its weights from the checkpoint instead.

    Raises:
        ModelError: They cannot be computed for this model and these rows.
    """
    model, adapter = parts.loaded.model, parts.config.adapter
    if not needs_first_weights(model):
        return
    batches = _first_batches(parts) if adapter.init_lora_weights in FROM_DATA else []
    if adapter.init_lora_weights != "loftq":
        logger.info("%s", compute_first_weights(model, adapter, batches, _loss_of(parts)))
        return
    location = resolve_with_adapters(parts.config.model, ()).base
    with StoredWeights(find_folder(location, parts.config.model)) as exact:
        logger.info("%s", compute_first_weights(model, adapter, batches, _loss_of(parts), exact.read))


def _first_batches(parts: RunParts) -> list[Batch]:
    """Return batches spread over the training set: the same ones in every process, so that adapters begin alike."""
    rows, size = parts.data.train, parts.config.training.batch_size
    assert rows is not None, "a run that trains has rows"
    wanted = min(len(rows), _NUM_BATCHES * size)
    places = [index * len(rows) // wanted for index in range(wanted)]
    collate = build_run_collator(parts)
    device = parts.arguments.device
    batches = [collate([rows[place] for place in places[start : start + size]]) for start in range(0, wanted, size)]
    return [move_batch(batch, device) for batch in batches]


def _loss_of(parts: RunParts) -> Callable[[Batch], Tensor]:
    model, device = parts.loaded.model, parts.arguments.device

    def measure(batch: Batch) -> Tensor:
        with parts.loaded.precision.autocast(torch.device(device)):
            found = parts.objective.compute(model, complete_step(parts.objective, model, batch))
        return found.total / found.items.clamp(min=1)

    return measure
