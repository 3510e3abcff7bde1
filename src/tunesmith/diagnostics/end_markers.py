"""Whether a base model knows the token that ends an answer, judged from its weights on disk.

A model ends an answer by giving its end marker a high score: the product of the last hidden state with the marker's row
of the output matrix. Base models reserve tokens for later that no text of their training holds. Their rows were never
pulled towards anything: they shrink towards zero, or all drift in the one direction away from what the model says. An
adapter that leaves that matrix frozen can hardly learn to score such a row high.

Two signs are looked for, either of which is enough:

- the row is much shorter than those of ordinary tokens;
- the row points where the rows of tokens point that certainly had no training: those that the matrix has beyond the
  vocabulary, and those named as reserved or unused. Ordinary rows must not point there too.

Both are read from a few thousand rows of the safetensors file; no model is loaded.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from tunesmith.config import RunConfig
from tunesmith.models.locations import resolve_location

_HEADS = ("lm_head.weight", "embed_out.weight", "output_layer.weight")
_EMBEDDINGS = (
    "embed_tokens.weight",
    "wte.weight",
    "embed_in.weight",
    "word_embeddings.weight",
    "tok_embeddings.weight",
)
_INDEX = "model.safetensors.index.json"
_UNUSED_NAME = re.compile(r"reserved|unused|extra_id|dummy|placeholder", re.IGNORECASE)

_SAMPLE_ROWS = 2048
_SHORT = 0.35
"""Share of the median length of rows below which a row counts as untrained."""

_ALIKE = 0.9
"""Cosine with the mean untrained row from which a row counts as untrained."""

_UNLIKE = 0.6
"""Cosine with it that the median ordinary row must stay below, or the direction says nothing."""


@dataclass(frozen=True, slots=True)
class OutputMatrix:
    """The matrix that scores tokens, on disk."""

    file: Path
    name: str
    """Name of the tensor in the file."""

    @property
    def module(self) -> str:
        """Name of the layer, as in `additional_target`."""
        return self.name.removesuffix(".weight").rpartition(".")[2]


def find_untrained_end_markers(
    config: RunConfig, tokenizer: PreTrainedTokenizerBase, end_markers: Sequence[str]
) -> list[str]:
    """Return a warning for each end marker that looks untrained and cannot be learnt by this run.

    Nothing is said of weights that are not in safetensors files on this disk, or that the run trains.
    """
    matrix = find_output_matrix(config)
    if matrix is None or _is_trained(config, matrix):
        return []
    return [
        f"The end marker {marker} looks untrained in {config.model.model_name_or_path} ({sign}), and this run leaves "
        f"{matrix.module} frozen, so the model may never stop. Set additional_target: {matrix.module}, or choose a "
        "template whose end marker the model knows."
        for marker in end_markers
        if (sign := find_sign(matrix, tokenizer, marker)) is not None
    ]


def find_output_matrix(config: RunConfig) -> OutputMatrix | None:
    """Return where the output matrix of a model is; nothing for hubs, GGUF files and other formats."""
    if not config.model.model_name_or_path:
        return None
    location = resolve_location(config.model)
    if location.kind != "folder" or location.path is None:
        return None
    for wanted in (_HEADS, _EMBEDDINGS):  # tied models have the second alone
        for file, name in _list_tensors(location.path):
            if name.endswith(wanted):
                return OutputMatrix(file, name)
    return None


def find_sign(matrix: OutputMatrix, tokenizer: PreTrainedTokenizerBase, marker: str) -> str | None:
    """Return by what a token looks untrained, or nothing if it does not, or is not a single token."""
    token = tokenizer.get_vocab().get(marker)
    if token is None:
        return None
    with safe_open(matrix.file, framework="pt") as file:
        rows = file.get_slice(matrix.name)
        total = rows.get_shape()[0]
        if token >= total:
            return None
        unused = _unused_tokens(tokenizer, total) - {token}
        ordinary = _evenly([number for number in range(min(len(tokenizer), total)) if number not in unused])
        row, usual = _read(rows, [token])[0], _read(rows, ordinary)
        reference = _read(rows, _evenly(sorted(unused))) if unused else None
    length = float(row.norm() / usual.norm(dim=1).median().clamp(min=1e-12))
    if length < _SHORT:
        return f"its row of {matrix.module} has {length:.2f} of the usual length"
    if reference is None or not reference.norm():
        return None
    direction = torch.nn.functional.normalize(torch.nn.functional.normalize(reference, dim=1).mean(dim=0), dim=0)
    alike = float(torch.nn.functional.cosine_similarity(row, direction, dim=0))
    others = float(torch.nn.functional.cosine_similarity(usual, direction[None], dim=1).median())
    if alike > _ALIKE and others < _UNLIKE:
        return f"its row of {matrix.module} points where those of unused tokens do, cosine {alike:.2f}"
    return None


def _is_trained(config: RunConfig, matrix: OutputMatrix) -> bool:
    adapter = config.adapter
    if adapter.finetuning_type == "full":
        return True
    named = adapter.freeze_extra_modules if adapter.finetuning_type == "freeze" else adapter.additional_target
    targets = (*named, *(adapter.lora_target if adapter.finetuning_type == "lora" else ()))
    return any(target == matrix.module or target.endswith(f".{matrix.module}") for target in targets)


def _list_tensors(folder: Path) -> Iterator[tuple[Path, str]]:
    index = folder / _INDEX
    if index.is_file():
        for name, file in json.loads(index.read_text(encoding="utf-8"))["weight_map"].items():
            if (folder / file).is_file():
                yield folder / file, name
    elif (folder / "model.safetensors").is_file():
        with safe_open(folder / "model.safetensors", framework="pt") as file:
            names = list(file.keys())
        yield from ((folder / "model.safetensors", name) for name in names)


def _unused_tokens(tokenizer: PreTrainedTokenizerBase, total: int) -> set[int]:
    beyond = set(range(len(tokenizer), total))
    named = {number for name, number in tokenizer.get_vocab().items() if number < total and _UNUSED_NAME.search(name)}
    added = set(tokenizer.added_tokens_decoder)
    return beyond | (named & added)  # ordinary words such as "unused" are tokens of texts


def _evenly(numbers: Sequence[int]) -> list[int]:
    step = max(1, len(numbers) // _SAMPLE_ROWS)
    return list(numbers[::step])


def _read(rows: Any, numbers: Sequence[int]) -> Tensor:
    """Return some rows of a matrix on disk in float32. Shape [rows, hidden]."""
    return torch.cat([rows[number : number + 1] for number in numbers]).float()
