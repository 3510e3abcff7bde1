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
    rows = []
    try:
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - not a mapping
                parts = name.split(".")
                is_of_embedding = parts[-1] == "lora_embedding_A"
                has_rows = is_of_embedding or (parts[-1] == "weight" and "lora_A" not in parts)
                if not set(ends) & set(parts) or not has_rows:
                    continue
                shape = weights.get_slice(name).get_shape()
                if len(shape) == 2:
                    rows.append(int(shape[1] if is_of_embedding else shape[0]))
    except SafetensorError:  # the loader says what is wrong with the file
        return []
    return rows
