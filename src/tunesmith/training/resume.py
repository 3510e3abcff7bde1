"""Where a run goes on: the newest whole checkpoint, or the one that was named."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith.errors import CheckpointError
from tunesmith.training.checkpoints import Manifest, RowOrder, check_checkpoint, find_checkpoints

logger = logging.getLogger(__name__)

RUN_STATE = "run_state.json"
_WAY_OUT = (
    "To use its weights in a new run instead, name the folder in adapter_name_or_path (an adapter) or "
    "model_name_or_path (a full model) and leave resume_from_checkpoint out."
)


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """A checkpoint that was looked through and is whole."""

    path: Path
    manifest: Manifest


def resolve_resume_point(setting: str | bool | None, output_dir: str | Path) -> ResumePoint | None:
    """Return the checkpoint to go on from; `None` starts at the beginning.

    Args:
        setting: Value of `resume_from_checkpoint`: a folder, true for the newest whole one, or nothing.
        output_dir: Where the run keeps its checkpoints.

    Raises:
        CheckpointError: The named checkpoint is damaged or missing, or there are checkpoints and none is whole.
    """
    if setting is None or setting is False:
        return None
    if setting is True:
        return _newest_whole(output_dir)
    path = Path(setting)
    if not path.is_dir():
        raise CheckpointError(f"resume_from_checkpoint: there is no folder {path}.")
    try:
        return _check(path)
    except CheckpointError as error:
        raise CheckpointError(
            f"resume_from_checkpoint: {error} Set it to true for the newest whole checkpoint, or name another."
        ) from error


def _newest_whole(output_dir: str | Path) -> ResumePoint | None:
    candidates = find_checkpoints(output_dir)[::-1]
    if not candidates:
        logger.warning(
            "resume_from_checkpoint is true, but %s holds no checkpoint yet: starting at the beginning.", output_dir
        )
        return None
    skipped: list[str] = []
    for path in candidates:
        try:
            point = _check(path)
        except CheckpointError as error:
            skipped.append(str(error))
            logger.warning("skipped a checkpoint: %s", error)
            continue
        logger.info("Resuming from %s.", path)
        return point
    reasons = "\n".join(f"  {reason}" for reason in skipped)
    raise CheckpointError(
        f"resume_from_checkpoint is true, but no checkpoint in {output_dir} is whole:\n{reasons}\n"
        "Remove resume_from_checkpoint and set overwrite_output_dir to start at the beginning."
    )


def _check(path: Path) -> ResumePoint:
    manifest = check_checkpoint(path)
    if not manifest.is_resumable:
        raise CheckpointError(
            f"{path} holds the weights alone (save_only_model was set), without the state of the optimizer. {_WAY_OUT}"
        )
    return ResumePoint(path, manifest)


def check_row_order(point: ResumePoint, order: RowOrder) -> None:
    """Refuse to go on where the remaining steps would train on other rows than an uninterrupted run.

    Raises:
        CheckpointError: Something that decides the order of rows has changed; the message lists it.
    """
    differences = order.differences(point.manifest.order)
    if differences:
        listed = "\n".join(f"  {difference}" for difference in differences)
        raise CheckpointError(
            f"{point.path} cannot be resumed by this run, since its rows come in another order:\n{listed}\n"
            f"Set them as they were. {_WAY_OUT}"
        )


def load_run_state(point: ResumePoint) -> dict[str, Any]:
    """Return what the run itself kept in a checkpoint (counters of the log)."""
    content: dict[str, Any] = json.loads((point.path / RUN_STATE).read_text(encoding="utf-8"))
    return content
