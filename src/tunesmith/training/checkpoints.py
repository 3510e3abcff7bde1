"""Checkpoints that are whole or do not exist.

All processes write into a hidden folder beside the final place. When everything is there it is synced to disk,
described in a manifest (size and digest of every file) and renamed: a folder called `checkpoint-<step>` is therefore
complete, and what a killed process leaves behind is never taken for one.
"""

import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith.errors import CheckpointError
from tunesmith.runtime.files import file_digest, sync_folder, sync_tree, write_json_atomic

logger = logging.getLogger(__name__)

MAKE_ROOM = "Earlier checkpoints are whole: make room and go on with resume_from_checkpoint=true."
"""What to do where a disk is full."""

MANIFEST = "manifest.json"
_MANIFEST_FORMAT = 1
_NAME = re.compile(r"checkpoint-(\d+)")
_UNFINISHED = re.compile(r"\.checkpoint-\d+\.(incomplete|replaced)|\.(.+\.)?incomplete-\d+")
"""Checkpoints here, and what `runtime.files` was writing; other programs' files keep out of these names."""


@dataclass(frozen=True, slots=True)
class RowOrder:
    """What decides which rows a step trains on. A run can only be resumed where all of it is the same."""

    num_rows: int
    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    num_processes: int
    seed: int
    """The seed that the order of rows is drawn with."""

    strategy: str
    drop_last: bool
    tokens_per_device_batch: int | None = None
    num_tokens: int | None = None
    """Of all rows: with another file, or another column of it, rows are as many and others. `None` for a stream."""

    def differences(self, recorded: Mapping[str, Any]) -> list[str]:
        """Return one line per setting that is not as recorded."""
        return [
            f"{name} was {recorded.get(name)!r} and is {value!r}"
            for name, value in self.to_dict().items()
            if recorded.get(name) != value
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint says about itself."""

    run_id: str
    """The run that wrote it; a resumed run keeps the id."""

    step: int
    order: Mapping[str, Any]
    settings: Mapping[str, Any]
    """What a run that goes on from here has to share, see `lineage.decisive_settings`."""

    is_resumable: bool
    """Whether it holds the optimizer, the schedule and the random state besides the weights."""

    files: Mapping[str, Mapping[str, Any]]
    """Size in bytes and SHA-256 of every file, by relative path."""


def checkpoint_path(output_dir: str | Path, step: int) -> Path:
    """Return where the checkpoint of a step goes."""
    return Path(output_dir) / f"checkpoint-{step}"


def staging_path(final: Path) -> Path:
    """Return the folder that all processes fill before it becomes the checkpoint."""
    return final.with_name(f".{final.name}.incomplete")


def start_checkpoint(final: Path) -> Path:
    """Return the empty folder to fill; what an earlier, killed attempt left there is removed."""
    staging = staging_path(final)
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    return staging


@contextmanager
def discard_unfinished(final: Path) -> Iterator[None]:
    """Remove what was written of a checkpoint when the block raises: on a full disk it would keep the disk full."""
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, staging_path(final), ignore_errors=True)
        yield
        stack.pop_all()


def remove_unfinished(output_dir: str | Path) -> None:
    """Remove what killed processes left of checkpoints and files; the folder has to be held by this run."""
    folder = Path(output_dir)
    for path in folder.iterdir() if folder.is_dir() else ():
        if not _UNFINISHED.fullmatch(path.name):
            continue
        logger.debug("removing %s, which an earlier process left behind", path)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def restore_replaced(output_dir: str | Path) -> None:
    """Bring back whole checkpoints whose process died between moving the old one aside and the new one in.

    Every process of a run may ask at the same time: one of them renames, and all see the checkpoint afterwards.
    """
    for aside in Path(output_dir).glob(".checkpoint-*.replaced"):
        final = aside.with_name(aside.stem.removeprefix("."))
        if not final.exists():
            with suppress(FileNotFoundError):  # another process of this run was faster
                aside.rename(final)


def finish_checkpoint(
    final: Path, *, run_id: str, step: int, order: RowOrder, settings: Mapping[str, Any], is_resumable: bool
) -> None:
    """Describe, sync and rename a filled folder; a checkpoint of the same name is replaced.

    Args:
        final: Where the checkpoint goes; `staging_path(final)` holds its files.
        run_id: Of the run that writes.
        step: Optimiser steps done.
        order: What decides the order of rows from here on.
        settings: What else a run that goes on from here has to share; JSON values.
        is_resumable: Whether the training state is there besides the weights.
    """
    staging = staging_path(final)
    names = sorted(path.relative_to(staging).as_posix() for path in staging.rglob("*") if path.is_file())
    manifest = {
        "format": _MANIFEST_FORMAT,
        "run_id": run_id,
        "step": step,
        "order": order.to_dict(),
        "settings": dict(settings),
        "is_resumable": is_resumable,
        "files": {
            name: {"bytes": (staging / name).stat().st_size, "sha256": file_digest(staging / name)} for name in names
        },
    }
    write_json_atomic(staging / MANIFEST, manifest)
    sync_tree(staging)
    replaced = final.with_name(f".{final.name}.replaced")
    if final.exists():
        shutil.rmtree(replaced, ignore_errors=True)
        final.rename(replaced)
    staging.rename(final)
    sync_folder(final.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def read_manifest(checkpoint: Path) -> Manifest:
    """Return what a checkpoint says about itself.

    Raises:
        CheckpointError: There is no manifest, or it cannot be read.
    """
    path = checkpoint / MANIFEST
    if not path.is_file():
        raise CheckpointError(f"{checkpoint} has no {MANIFEST}, so it was not written to its end by this program.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Manifest(
            run_id=str(content["run_id"]),
            step=int(content["step"]),
            order=dict(content["order"]),
            settings=dict(content["settings"]),
            is_resumable=bool(content["is_resumable"]),
            files=dict(content["files"]),
        )
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}), so the checkpoint cannot be trusted.") from error


def check_checkpoint(checkpoint: Path) -> Manifest:
    """Compare every file of a checkpoint with its manifest.

    Raises:
        CheckpointError: A file is missing or differs; the message names it.
    """
    manifest = read_manifest(checkpoint)
    for name, expected in manifest.files.items():
        path = checkpoint / name
        if not path.is_file():
            raise CheckpointError(f"{checkpoint} is damaged: {name} is missing.")
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise CheckpointError(
                f"{checkpoint} is damaged: {name} has {size} bytes where {expected['bytes']} were written."
            )
        if file_digest(path) != expected["sha256"]:
            raise CheckpointError(f"{checkpoint} is damaged: the content of {name} is not what was written.")
    return manifest


def find_checkpoints(output_dir: str | Path) -> list[Path]:
    """Return the folders named like checkpoints, oldest step first; whether they are whole is not looked at."""
    folder = Path(output_dir)
    if not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found) if path.is_dir()]


def rotate_checkpoints(output_dir: str | Path, limit: int | None, *, run_id: str, best: str | None) -> list[Path]:
    """Remove the oldest checkpoints of this run beyond a limit, and return them.

    The newest, the best and those of other runs (or without a readable manifest) stay whatever the limit is.
    """
    if limit is None:
        return []
    own = [path for path in find_checkpoints(output_dir) if _belongs_to(path, run_id)]
    kept = {own[-1].resolve()} if own else set()
    if best is not None:
        kept.add(Path(best).resolve())
    surplus = len(own) - limit
    removed: list[Path] = []
    for path in own:
        if len(removed) >= surplus:
            break
        if path.resolve() not in kept:
            logger.debug("removing %s: save_total_limit is %d", path, limit)
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
    return removed


def _belongs_to(checkpoint: Path, run_id: str) -> bool:
    try:
        return read_manifest(checkpoint).run_id == run_id
    except CheckpointError:
        return False
