"""Which model an adapter belongs to: a name, and a few of its weights by which it is known again.

An adapter is a difference. On other weights than those it was trained beside it gives other answers, without an error
as long as the shapes agree. So a saved adapter keeps four values of each of some of the base's weights, and whoever
loads it compares.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tunesmith.models.reward.build import SCORE
from tunesmith.runtime.files import write_json_atomic

RECORD_FILE = "base_model.json"

_FORMAT = 1
_NUM_WEIGHTS = 24
_NUM_VALUES = 4
_EXACT = 1e-6
_ROUNDED = 2**-7
"""Relative difference that a number may have after it was rounded to bfloat16 once more or less."""

Samples = Mapping[str, tuple[float, ...]]
"""First values of some weights by name."""


@dataclass(frozen=True, slots=True)
class BaseRecord:
    """The model that an adapter was trained beside."""

    name: str
    """Hub id or folder, as the user gave it."""

    num_rows: int
    """Rows of its embedding."""

    dtype: str
    """Number type that its weights had, such as `bfloat16`."""

    samples: Samples
    merged: tuple[str, ...] = ()
    """Adapters that were merged into it first, in order."""

    @classmethod
    def of(cls, model: nn.Module, name: str, num_rows: int, merged: tuple[str, ...] = ()) -> Self:
        """Take the record of a model without adapters."""
        samples, dtype = sample_weights(model)
        return cls(name, num_rows, dtype, samples, merged)

    @classmethod
    def of_base(cls, model: PreTrainedModel) -> Self:
        """Take the record of a loaded model."""
        return cls.of(model, model.name_or_path, int(model.get_input_embeddings().weight.shape[0]))

    @classmethod
    def load(cls, folder: str | Path) -> Self | None:
        """Read the record beside an adapter; `None` where there is none, as beside adapters of other programs."""
        try:
            content = json.loads((Path(folder) / RECORD_FILE).read_text(encoding="utf-8"))
            return cls(
                name=str(content["name"]),
                num_rows=int(content["num_rows"]),
                dtype=str(content["dtype"]),
                samples={str(name): tuple(map(float, values)) for name, values in content["samples"].items()},
                merged=tuple(map(str, content["merged"])),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def save(self, folder: str | Path) -> None:
        """Write the record beside an adapter."""
        content = {
            "format": _FORMAT,
            "name": self.name,
            "num_rows": self.num_rows,
            "dtype": self.dtype,
            "merged": list(self.merged),
            "samples": {name: list(values) for name, values in self.samples.items()},
        }
        write_json_atomic(Path(folder) / RECORD_FILE, content)

    def find_difference(self, other: "BaseRecord") -> str | None:
        """Return the first weight that another model has with other values; `None` where it looks the same.

        Where the two were loaded in different number types, rounding is forgiven. Weights that only one of them has as
        plain numbers (the other may be quantised) say nothing, nor does a score head: the adapter brings its own.
        """
        tolerance = _EXACT if self.dtype == other.dtype else _ROUNDED
        for name, values in self.samples.items():
            found = other.samples.get(name)
            if found is None or len(found) != len(values) or _is_of_score_head(name):
                continue
            scale = max(map(abs, values), default=0.0)
            if any(abs(a - b) > tolerance * max(scale, 1e-12) for a, b in zip(values, found, strict=True)):
                return name
        return None


def sample_weights(model: nn.Module) -> tuple[Samples, str]:
    """Return the first values of some weights, spread over the whole model, and the type most of these have."""
    # Compressed weights have classes of their own, and may hold the bits of several values in a float. The head of a
    # reward model is new, with random numbers, until the adapter brings its own.
    plain = (
        (name, weight)
        for name, weight in model.named_parameters()
        if type(weight) is nn.Parameter and not _is_of_score_head(name)
    )
    floating = sorted((pair for pair in plain if pair[1].is_floating_point()), key=lambda pair: pair[0])
    step = max(1, len(floating) // _NUM_WEIGHTS)
    chosen = floating[::step]
    types = [str(value.dtype).removeprefix("torch.") for _, value in chosen] or ["none"]
    return {name: _first_values(value) for name, value in chosen}, max(set(types), key=types.count)


def _is_of_score_head(name: str) -> bool:
    return name.startswith(f"{SCORE}.")


def _first_values(weight: Tensor) -> tuple[float, ...]:
    """Return values of the first rows alone: a vocabulary may grow at its end."""
    with torch.no_grad():
        return tuple(weight.detach().reshape(-1)[:_NUM_VALUES].float().cpu().tolist())
