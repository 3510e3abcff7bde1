"""Checkpoints of three lines, and ways to damage them."""

from pathlib import Path

from tunesmith.training.checkpoints import RowOrder, checkpoint_path, finish_checkpoint, start_checkpoint

ORDER = RowOrder(
    num_rows=10,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=1,
    num_processes=1,
    seed=3,
    strategy="random",
    drop_last=False,
    num_tokens=50,
)


def write_checkpoint(
    folder: Path, step: int, *, run_id: str = "mine", is_resumable: bool = True, content: str = "weights"
) -> Path:
    """Write a whole checkpoint of a run."""
    final = checkpoint_path(folder, step)
    staging = start_checkpoint(final)
    (staging / "model.safetensors").write_text(content)
    (staging / "deep").mkdir()
    (staging / "deep" / "state.pt").write_text("state")
    finish_checkpoint(final, run_id=run_id, step=step, order=ORDER, settings={}, is_resumable=is_resumable)
    return final


def spoil_size(final: Path) -> None:
    """Write fewer bytes."""
    (final / "model.safetensors").write_text("short")


def spoil_content(final: Path) -> None:
    """Write as many other bytes."""
    (final / "model.safetensors").write_text("WEIGHTS")


def remove_file(final: Path) -> None:
    """Remove a file that the manifest lists."""
    (final / "deep" / "state.pt").unlink()


def remove_manifest(final: Path) -> None:
    """Remove what says that the checkpoint is whole."""
    (final / "manifest.json").unlink()


def cut_manifest(final: Path) -> None:
    """Leave half a manifest."""
    (final / "manifest.json").write_text('{"run_id": "mi')


DAMAGES = [
    (spoil_size, "model.safetensors has 5 bytes where 7 were written"),
    (spoil_content, "the content of model.safetensors is not what was written"),
    (remove_file, "deep/state.pt is missing"),
    (remove_manifest, "has no manifest.json"),
    (cut_manifest, "cannot be read"),
]
