"""How many rows a saved adapter was trained with: its weights fit no other number."""

from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open

_WEIGHTS = "adapter_model.safetensors"


def find_adapted_rows(folders: Sequence[str], ends: Sequence[str]) -> int | None:
    """Return the rows of the embedding or head in saved adapters, `None` where none of them changes either.

    Whole trained copies have a shape [rows, width], LoRA's factors [rank, rows] on an embedding and [rows, rank] on a
    head. What other methods keep beside an end, such as the few rows of `trainable_tokens`, says nothing of its size.

    Args:
        folders: Of the adapters.
        ends: Last parts of the names of the model's embedding and head, such as `embed_tokens` and `lm_head`.
    """
    found = [rows for folder in folders for rows in _rows_of(Path(folder) / _WEIGHTS, ends)]
    return max(found, default=None)


def _rows_of(file: Path, ends: Sequence[str]) -> list[int]:
    if not file.is_file():
        return []
    try:
        with safe_open(file, framework="pt") as weights:
            every = weights.keys()
            names = [name for name in every if not set(ends).isdisjoint(name.split("."))]
            found = [_rows_in(name, weights.get_slice(name).get_shape()) for name in names]
    except SafetensorError:  # the loader says what is wrong with the file
        return []
    return [rows for rows in found if rows is not None]


def _rows_in(name: str, shape: Sequence[int]) -> int | None:
    """Return how many rows a weight beside an end stands for, `None` where it says nothing of that."""
    parts = name.split(".")
    if len(shape) != 2:
        return None
    if parts[-1] == "lora_embedding_A":
        return int(shape[1])
    return int(shape[0]) if parts[-1] == "weight" and "lora_A" not in parts else None
