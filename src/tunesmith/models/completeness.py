"""Refusing models that transformers would complete with random numbers, and files that are not whole."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from tunesmith.errors import ModelError


def check_complete(name: str, loading_info: Mapping[str, Any]) -> None:
    """Check that every weight of a model came from its files.

    Args:
        name: Of the model, for the message.
        loading_info: What `from_pretrained(..., output_loading_info=True)` gave.

    Raises:
        ModelError: Some are missing or have another shape.
    """
    wrong = sorted(loading_info["missing_keys"]) + sorted(str(key) for key in loading_info["mismatched_keys"])
    if wrong:
        raise ModelError(
            f"model_name_or_path: {name} lacks {len(wrong)} of the model's weights, or has them in another "
            f"shape: {', '.join(wrong[:3])}{' ...' if len(wrong) > 3 else ''}. They would be random. Give a complete "
            "model, or set train_from_scratch: true."
        )


@contextmanager
def explain_damaged_files(name: str, folder: Path | None, setting: str) -> Iterator[None]:
    """Say which weight file is damaged, where the library that reads it only says how.

    Args:
        name: Of the model or adapter, for the message.
        folder: Where its files are, if they are on this disk under a known name.
        setting: That the name comes from.

    Raises:
        ModelError: A file is not whole.
    """
    try:
        yield
    except SafetensorError as error:
        damaged = None if folder is None else find_damaged_file(folder)
        place = f"a weight file of {name}" if damaged is None else damaged
        raise ModelError(
            f"{setting}: {place} is damaged ({error}), as after a download or a copy that was cut off. Download or "
            "copy it again."
        ) from error


def find_damaged_file(folder: Path) -> Path | None:
    """Return the first weight file of a folder that is not whole; only their beginnings are read."""
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt"):
                pass
        except SafetensorError:
            return path
    return None
