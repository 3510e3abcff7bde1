"""Is there room for what a run will save? Asked before its first step."""

import logging
import math

from tunesmith.config.training import TrainingConfig
from tunesmith.errors import ConfigError, ConfigProblem
from tunesmith.runtime.disk import free_bytes, render_bytes, render_room
from tunesmith.training.assembly import RunParts
from tunesmith.training.saved_sizes import saved_bytes, trained_bytes
from tunesmith.training.schedule import Schedule

logger = logging.getLogger(__name__)

_STATES_PER_WEIGHT = 2
"""Numbers that AdamW keeps of each trained weight; few optimizers keep more."""


def check_room_for_results(parts: RunParts, num_steps_done: int = 0) -> None:
    """Make sure that the trained weights fit into the folder of a run, and warn where its checkpoints will not.

    Args:
        parts: Of the run.
        num_steps_done: By the run that it goes on with; their checkpoints are there.

    Raises:
        ConfigError: Not even the weights alone fit.
    """
    training, model, place = parts.config.training, parts.loaded.model, parts.output_dir
    if parts.schedule is None or not parts.ranks.is_main:
        return
    weights, free = saved_bytes(model), free_bytes(place)
    if weights > free:
        problem = f"`output_dir` is '{place}', and the trained weights do not fit there: {render_room(place, weights)}."
        raise ConfigError([ConfigProblem("output_dir", f"{problem} Make room there, or name another folder.")])
    checkpoint = weights + (0 if training.save_only_model else _STATES_PER_WEIGHT * trained_bytes(model))
    count = count_kept_checkpoints(training, parts.schedule, num_steps_done)
    if weights + count * checkpoint > free:
        logger.warning(
            "There is not room for everything that this run will save: %s of about %s and the trained weights of %s "
            "take more than the %s that are free in %s. Make room there, or keep fewer or smaller checkpoints "
            "(save_total_limit, save_steps, save_only_model).",
            "a checkpoint" if count == 1 else f"{count} checkpoints",
            render_bytes(checkpoint),
            render_bytes(weights),
            render_bytes(free),
            place,
        )


def count_kept_checkpoints(training: TrainingConfig, schedule: Schedule, num_steps_done: int = 0) -> int:
    """Return the most checkpoints still to be written that stand in the folder of a run at one time."""
    total, left = schedule.total_steps, schedule.total_steps - num_steps_done
    if training.save_strategy == "no":
        return 0
    if training.save_strategy == "best":
        written = 1
    elif training.save_strategy == "steps":
        every = training.save_steps if training.save_steps >= 1 else math.ceil(training.save_steps * total)
        written = math.ceil(left / every)
    else:
        written = math.ceil(left / schedule.steps_per_epoch) if schedule.steps_per_epoch else 1
    # A new one is whole before the oldest goes.
    return min(written, written if training.save_total_limit is None else training.save_total_limit + 1)
