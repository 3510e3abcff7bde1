"""Score heads as they are kept in folders.

A reward model of ours is the sequence classifier that transformers writes: `score.weight` beside the body's weights, or
among an adapter's whole modules. LLaMA-Factory keeps a language model or an adapter as it is, and the head in a file
beside it: `value_head.safetensors` or `value_head.bin` with `v_head.summary.weight` and `v_head.summary.bias`.
"""

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers.utils import cached_file

from tunesmith.config.model import ModelConfig
from tunesmith.errors import ModelError
from tunesmith.models.completeness import explain_damaged_files
from tunesmith.models.locations import AdaptedLocation, ModelLocation

VALUE_HEAD_FILES = ("value_head.safetensors", "value_head.bin")
_WEIGHT, _BIAS = "v_head.summary.weight", "v_head.summary.bias"
_CLASSIFIER = "ForSequenceClassification"


@dataclass(frozen=True, slots=True)
class StoredHead:
    """A score head that was read from a file."""

    weight: Tensor
    """Shape [1, hidden]."""

    bias: Tensor | None
    """Shape [1]."""

    file: Path


def is_classifier_config(settings: Mapping[str, Any]) -> bool:
    """Whether a model's configuration says that it classifies whole texts."""
    return any(str(name).endswith(_CLASSIFIER) for name in settings.get("architectures") or ())


def describes_reward_model(found: AdaptedLocation, settings: Mapping[str, Any]) -> bool:
    """Whether what is stored calls itself a reward model: the base, a value head on this disk, or one of the adapters.

    Args:
        found: The base and its adapters.
        settings: The base's configuration as a mapping (`config.to_dict()`).
    """
    base = found.base
    folders = [*found.adapters, *([str(base.path)] if base.path is not None and base.path.is_dir() else [])]
    return (
        is_classifier_config(settings)
        or any(find_value_head_file(folder) is not None for folder in folders)
        or any(adapter_has_score(adapter) for adapter in found.adapters)
    )


def adapter_has_score(adapter: str) -> bool:
    """Whether a saved adapter brings a score head of its own, as those of reward models do."""
    settings = _read_json(Path(adapter) / "adapter_config.json")
    return settings.get("task_type") == "SEQ_CLS" or "score" in (settings.get("modules_to_save") or ())


def find_value_head_file(folder: str | Path) -> Path | None:
    """Return LLaMA-Factory's value head of a folder, or `None`."""
    return next((Path(folder) / name for name in VALUE_HEAD_FILES if (Path(folder) / name).is_file()), None)


def find_value_head(location: ModelLocation, config: ModelConfig) -> Path | None:
    """Return LLaMA-Factory's value head beside a model, wherever that is, or `None`."""
    if location.kind != "hub":
        if location.path is None:
            return None
        return find_value_head_file(location.path if location.path.is_dir() else location.path.parent)
    for name in VALUE_HEAD_FILES:
        file = cached_file(
            location.name,
            name,
            revision=config.model_revision,
            cache_dir=config.cache_dir,
            token=config.hf_hub_token,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
            _raise_exceptions_for_gated_repo=False,
        )
        if file is not None:
            return Path(file)
    return None


def load_value_head(file: Path, hidden_size: int) -> StoredHead:
    """Read LLaMA-Factory's value head; nothing but tensors is unpickled.

    Args:
        file: One of `VALUE_HEAD_FILES`.
        hidden_size: Of the body that it will be put on.

    Raises:
        ModelError: The file is damaged, holds something else, or belongs to a body of another width.
    """
    tensors = _read_tensors(file)
    weight, bias = tensors.get(_WEIGHT), tensors.get(_BIAS)
    if weight is None:
        raise ModelError(
            f"{file} holds no {_WEIGHT}; found: {_shown(sorted(tensors))}. Give a value head that LLaMA-Factory wrote."
        )
    if tuple(weight.shape) != (1, hidden_size):
        raise ModelError(
            f"{file} holds a head of shape {list(weight.shape)}, and this model needs [1, {hidden_size}]. Give the "
            "model that it was trained with."
        )
    return StoredHead(weight.float(), None if bias is None else bias.float().reshape(1), file)


def find_stored_head(found: AdaptedLocation, config: ModelConfig, hidden_size: int) -> StoredHead | None:
    """Return the value head of LLaMA-Factory that belongs to a model: the last adapter's, or else the base's."""
    files = [find_value_head_file(adapter) for adapter in reversed(found.adapters)]
    file = next((each for each in files if each is not None), None) or find_value_head(found.base, config)
    return None if file is None else load_value_head(file, hidden_size)


def load_classifier_head(folder: Path, hidden_size: int) -> StoredHead | None:
    """Read the head of a folder that transformers wrote as it is stored, unrounded; `None` where it has none.

    Raises:
        ModelError: It has more than one label.
    """
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with explain_damaged_files(str(folder), folder, "model_name_or_path"), safe_open(path, framework="pt") as file:
            tensors |= {name: file.get_tensor(name) for name in file.keys() if name in {"score.weight", "score.bias"}}  # noqa: SIM118
    if "score.weight" not in tensors:
        return None
    weight, bias = tensors["score.weight"], tensors.get("score.bias")
    if tuple(weight.shape) != (1, hidden_size):
        raise ModelError(
            f"model_name_or_path: the head of {folder} has the shape {list(weight.shape)}; a reward model has one "
            f"score per text, [1, {hidden_size}]. Give a reward model, or a language model to begin a new one."
        )
    return StoredHead(weight.float(), None if bias is None else bias.float().reshape(1), folder)


def explain_missing_head(found: AdaptedLocation, config: ModelConfig) -> ModelError:
    """Say what was looked for and what is there, where a reward model has no head."""
    seen = []
    base = found.base
    if base.path is not None and base.path.is_dir():
        kinds = _read_json(base.path / "config.json").get("architectures") or ["no architecture"]
        seen.append(f"{base.name} is {', '.join(map(str, kinds))} with {_shown(_list_files(base.path))}")
    else:
        seen.append(f"{base.name} is a language model without a score head")
    for adapter in found.adapters:
        modules = _read_json(Path(adapter) / "adapter_config.json").get("modules_to_save") or ["no whole modules"]
        seen.append(f"{adapter} has {', '.join(modules)} and {_shown(_list_files(Path(adapter)))}")
    return ModelError(
        f"model_name_or_path: {base.name} has no score head, and a random one would give random scores. A head is "
        f"`score.weight` of a {_CLASSIFIER} model, `score` of an adapter, or {' or '.join(VALUE_HEAD_FILES)}. "
        f"Found: {'; '.join(seen)}. Give the folder that a run with `stage: rm` wrote."
    )


def _read_tensors(file: Path) -> dict[str, Tensor]:
    if file.suffix == ".safetensors":
        with explain_damaged_files(str(file.parent), file.parent, "model_name_or_path"):
            loaded: dict[str, Tensor] = load_file(file)
            return loaded
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"{file} cannot be read as a file of tensors: {first}. It is damaged or would run code when it is loaded; "
            f"take the {VALUE_HEAD_FILES[0]} of the same model, or copy it again."
        ) from error
    return {name: value for name, value in content.items() if isinstance(value, Tensor)}


def _read_json(path: Path) -> Mapping[str, Any]:
    """Return the content of a file of settings; nothing where it is missing or damaged, which others report."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, Mapping) else {}


def _list_files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if file.suffix in {".safetensors", ".bin", ".json"})


def _shown(names: Sequence[str]) -> str:
    return f"{', '.join(names[:8])}{' ...' if len(names) > 8 else ''}" if names else "nothing"
