"""Where a model is: a folder, a GGUF file, an adapter folder, or an id on a hub."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tunesmith.config.model import ModelConfig
from tunesmith.errors import ModelError
from tunesmith.models.gguf.metadata import find_gguf_file
from tunesmith.runtime.optional import require

_ADAPTER_FILE = "adapter_config.json"


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """A place that a model can be loaded from."""

    kind: Literal["folder", "gguf", "adapter", "hub"]
    name: str
    """What the user wrote: the path or the hub id."""

    path: Path | None
    """On this disk; `None` for an id that the Hugging Face library will look up."""

    @property
    def source(self) -> str:
        """What `from_pretrained` takes."""
        return str(self.path) if self.path is not None else self.name


def resolve_location(config: ModelConfig, name: str | None = None) -> ModelLocation:
    """Find out what `model_name_or_path` is; ids on ModelScope are downloaded.

    Args:
        config: Settings of the model.
        name: Something else to look for under the same settings, such as an adapter.

    Raises:
        ModelError: The path does not exist or holds no model.
    """
    name = name or config.model_name_or_path
    if not name:
        raise ModelError("model_name_or_path: is not set. Give a local folder, a GGUF file or a hub id.")
    path = Path(name).expanduser()
    if path.exists():
        return _resolve_path(name, path)
    if _looks_like_path(name):
        raise ModelError(
            f"model_name_or_path: {name} does not exist. Give an existing folder, a GGUF file or a hub id (org/name)."
        )
    if is_modelscope(config):
        return _resolve_path(name, _download_from_modelscope(config, name))
    return ModelLocation("hub", name, None)


def find_base_of_adapter(location: ModelLocation) -> str | None:
    """Return the base model that an adapter folder names, or `None` if it names none."""
    if location.path is None:
        return None
    content = json.loads((location.path / _ADAPTER_FILE).read_text(encoding="utf-8"))
    return content.get("base_model_name_or_path") or None


def resolve_adapter(config: ModelConfig, name: str) -> str:
    """Return where a saved adapter is: a folder on this disk, or an id for the Hugging Face library.

    Raises:
        ModelError: The path does not exist or holds no adapter.
    """
    folder = Path(name).expanduser()
    if not folder.exists():
        if _looks_like_path(name):
            raise ModelError(f"adapter_name_or_path: {name} does not exist. Give an adapter folder or a hub id.")
        if not is_modelscope(config):
            return name
        folder = _download_from_modelscope(config, name)
    if not (folder / _ADAPTER_FILE).is_file():
        raise ModelError(
            f"adapter_name_or_path: {name} holds no {_ADAPTER_FILE}. Give the folder that a LoRA run wrote, or "
            "model_name_or_path if it is a whole model."
        )
    return str(folder)


def is_modelscope(config: ModelConfig) -> bool:
    """Whether ids are looked up on ModelScope instead of Hugging Face."""
    if config.model_hub == "auto":
        return os.environ.get("USE_MODELSCOPE_HUB", "").lower() in {"1", "true", "yes"}
    return config.model_hub == "modelscope"


def _looks_like_path(name: str) -> bool:
    return name.startswith(("/", ".", "~")) or name.endswith(".gguf") or name.count("/") > 1 or "\\" in name


def _resolve_path(name: str, path: Path) -> ModelLocation:
    if path.is_file():
        if path.suffix == ".gguf":
            return ModelLocation("gguf", name, path)
        raise ModelError(f"model_name_or_path: {name} is a file, but not a GGUF file. Give the folder that it is in.")
    if (path / "config.json").is_file():
        return ModelLocation("folder", name, path)
    if (path / _ADAPTER_FILE).is_file():
        return ModelLocation("adapter", name, path)
    gguf_file = find_gguf_file(path)
    if gguf_file is not None:
        return ModelLocation("gguf", name, gguf_file)
    found = ", ".join(sorted(entry.name for entry in path.iterdir())[:8]) or "nothing"
    raise ModelError(
        f"model_name_or_path: {name} is not a model: it has no config.json, no {_ADAPTER_FILE} and no .gguf file "
        f"(found: {found}). Give the folder that holds config.json."
    )


def _download_from_modelscope(config: ModelConfig, name: str) -> Path:
    modelscope = require("modelscope", "modelscope", f"download {name} from ModelScope")
    if config.ms_hub_token:
        modelscope.HubApi().login(config.ms_hub_token)
    revision = "master" if config.model_revision == "main" else config.model_revision  # its name for the same thing
    try:
        return Path(modelscope.snapshot_download(name, revision=revision, cache_dir=config.cache_dir))
    except (OSError, ValueError) as error:  # requests' errors are OSErrors
        raise ModelError(
            f"model_name_or_path: {name} (revision {revision}) cannot be fetched from ModelScope: {error}. "
            "Check the id and the network, or give a local folder."
        ) from error


def hub_error(name: str, config: ModelConfig, error: Exception) -> ModelError:
    """Explain a failed look-up on Hugging Face in terms of the settings."""
    offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes"}
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    reason = "HF_HUB_OFFLINE is set and it is not in the cache" if offline else first
    return ModelError(
        f"model_name_or_path: {name} (revision {config.model_revision}) cannot be loaded from Hugging Face: {reason}. "
        "It is neither a local path nor a reachable hub id: check the spelling, the network and hf_hub_token, set "
        "model_hub: modelscope, or give a local folder."
    )
