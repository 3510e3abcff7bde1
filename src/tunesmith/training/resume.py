"""Where a run goes on: its own newest whole checkpoint, or the one that was named."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith.errors import CheckpointError
from tunesmith.runtime.files import write_text_atomic
from tunesmith.training.checkpoints import (
    Manifest,
    RowOrder,
    check_checkpoint,
    find_checkpoints,
    read_manifest,
    restore_replaced,
)

logger = logging.getLogger(__name__)

RUN_STATE = "run_state.json"
RUN_ID = ".run_id"
"""Which run a folder belongs to, written when it starts: checkpoints of an older one may still lie there."""

_WAY_OUT = (
    "To use its weights in a new run instead, name the folder in adapter_name_or_path (an adapter) or "
    "model_name_or_path (a full model) and leave resume_from_checkpoint out."
)


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """A checkpoint that was looked through and is whole."""

    path: Path
    manifest: Manifest


def save_run_id(output_dir: str | Path, run_id: str) -> None:
    """Make a folder that of a run, from its start on."""
    write_text_atomic(Path(output_dir) / RUN_ID, run_id + "\n")


def find_run_id(output_dir: str | Path) -> str | None:
    """Return the run that a folder belongs to; `None` where it does not say."""
    path = Path(output_dir) / RUN_ID
    return path.read_text(encoding="utf-8").strip() if path.is_file() else None


def resolve_resume_point(setting: str | bool | None, output_dir: str | Path) -> ResumePoint | None:
    """Return the checkpoint to go on from; `None` starts at the beginning.

    Args:
        setting: Value of `resume_from_checkpoint`: a folder, true for the newest whole one of the run that the folder
            belongs to, or nothing.
        output_dir: Where the run keeps its checkpoints.

    Raises:
        CheckpointError: The named checkpoint is damaged or missing, or the run has checkpoints and none is whole.
    """
    if setting is None or setting is False:
        return None
    restore_replaced(output_dir)
    if setting is True:
        return _newest_whole(output_dir)
    path = Path(setting)
    if not path.is_dir():
        raise CheckpointError(
            f"resume_from_checkpoint: there is no folder {path}. Name a checkpoint, or set it to true for the newest "
            "whole one in output_dir."
        )
    try:
        manifest = check_checkpoint(path)
    except CheckpointError as error:
        raise CheckpointError(
            f"resume_from_checkpoint: {error} Set it to true for the newest whole checkpoint, or name another."
        ) from error
    if not manifest.is_resumable:
        raise CheckpointError(f"resume_from_checkpoint: {_weights_alone(path)} {_WAY_OUT}")
    return ResumePoint(path, manifest)


def _newest_whole(output_dir: str | Path) -> ResumePoint | None:
    own, foreign = _sort_by_run(find_checkpoints(output_dir)[::-1], find_run_id(output_dir))
    for path in foreign:
        logger.warning("skipped a checkpoint: %s belongs to another run than the last one started here.", path)
    if not own:
        logger.warning(
            "resume_from_checkpoint is true, but %s holds no checkpoint %s: starting at the beginning.",
            output_dir,
            "of the last run started here" if foreign else "yet",
        )
        return None
    skipped: list[str] = []
    has_weights = False
    for path in own:
        try:
            manifest = check_checkpoint(path)
        except CheckpointError as error:
            skipped.append(str(error))
            continue
        if manifest.is_resumable:
            for reason in skipped:
                logger.warning("skipped a checkpoint: %s", reason)
            logger.info("Resuming from %s.", path)
            return ResumePoint(path, manifest)
        has_weights = True
        skipped.append(_weights_alone(path))
    reasons = "\n".join(f"  {reason}" for reason in skipped)
    hint = f"{_WAY_OUT}\n" if has_weights else ""
    raise CheckpointError(
        f"resume_from_checkpoint is true, but no checkpoint in {output_dir} can be resumed:\n{reasons}\n{hint}"
        "Remove resume_from_checkpoint and set overwrite_output_dir to start at the beginning."
    )


def _sort_by_run(checkpoints: Sequence[Path], run_id: str | None) -> tuple[list[Path], list[Path]]:
    """Tell checkpoints that may be of a run from those that say they are not; the order stays."""
    own: list[Path] = []
    foreign: list[Path] = []
    for path in checkpoints:
        try:
            belongs = run_id is None or read_manifest(path).run_id == run_id
        except CheckpointError:  # damaged, and reported as such
            belongs = True
        (own if belongs else foreign).append(path)
    return own, foreign


def _weights_alone(path: Path) -> str:
    return f"{path} holds the weights alone (save_only_model was set), without the state of the optimizer."


def check_row_order(point: ResumePoint, order: RowOrder) -> None:
    """Refuse to go on where the remaining steps would train on other rows than an uninterrupted run.

    Raises:
        CheckpointError: Something that decides the order of rows has changed; the message lists it.
    """
    differences = order.differences(point.manifest.order)
    if differences:
        listed = "\n".join(f"  {difference}" for difference in differences)
        of_data = any(difference.startswith(("num_rows ", "num_tokens ")) for difference in differences)
        reason = "A file of a data set, or its entry in dataset_info, is not what it was. " if of_data else ""
        raise CheckpointError(
            f"{point.path} cannot be resumed by this run, since its rows are others or come in another order:\n"
            f"{listed}\n{reason}Set them as they were. {_WAY_OUT}"
        )


def load_run_state(point: ResumePoint) -> dict[str, Any]:
    """Return what the run itself kept in a checkpoint (counters of the log)."""
    content: dict[str, Any] = json.loads((point.path / RUN_STATE).read_text(encoding="utf-8"))
    return content
