"""Where a model is: a folder, a GGUF file, an adapter folder, or an id on a hub."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import snapshot_download

from tunesmith.config.model import ModelConfig
from tunesmith.config.suggestions import render_similar_path
from tunesmith.errors import ModelError
from tunesmith.models.gguf.metadata import find_gguf_file
from tunesmith.runtime.hub import find_network_trouble, watch_hub
from tunesmith.runtime.optional import require

ADAPTER_FILE = "adapter_config.json"
# Beside the adapter, repositories keep checkpoints of the run and other copies of the weights.
_NOT_OF_AN_ADAPTER = ["*/*", "*.pt", "*.pth", "*.gguf"]


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
            f"{render_similar_path(name)}"
        )
    if config.is_on_modelscope:
        return _resolve_path(name, _download_from_modelscope(config, name))
    watch_hub()
    return ModelLocation("hub", name, None)


def resolve_base_of_adapter(config: ModelConfig, adapter: ModelLocation) -> ModelLocation:
    """Return where the base model is that an adapter folder names.

    Raises:
        ModelError: It names none, or one that is not there any more.
    """
    assert adapter.path is not None, "an adapter given as the model is on this disk"
    base = read_adapter_file(adapter.path, "model_name_or_path").get("base_model_name_or_path")
    remedy = "Set model_name_or_path to the base model and adapter_name_or_path to this folder."
    where = f"model_name_or_path: the adapter {adapter.name}"
    if not base:
        raise ModelError(f"{where} does not say what its base model is. {remedy}")
    if _looks_like_path(base) and not Path(base).expanduser().exists():
        raise ModelError(f"{where} belongs to {base}, which does not exist. {remedy}")
    return resolve_location(config, base)


def read_adapter_file(folder: Path, setting: str) -> Mapping[str, Any]:
    """Return what a folder says of the adapter in it; empty where that is no mapping.

    Args:
        folder: Of the adapter.
        setting: That named the folder, for the message.

    Raises:
        ModelError: The file is not there, or no JSON.
    """
    file = folder / ADAPTER_FILE
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{setting}: {file} cannot be read as JSON: {error}. Give another adapter.") from error
    return content if isinstance(content, dict) else {}


@dataclass(frozen=True, slots=True)
class AdaptedLocation:
    """A base model and the adapters on it."""

    base: ModelLocation
    adapters: tuple[str, ...]
    """Folders on this disk, in the order in which they are applied."""


def resolve_with_adapters(config: ModelConfig, adapters: Sequence[str]) -> AdaptedLocation:
    """Find the base model and its adapters; an adapter folder given as the model brings its own base.

    Raises:
        ModelError: One of them is not there.
    """
    folders = tuple(str(resolve_adapter(config, name)) for name in adapters)
    location = resolve_location(config)
    if location.kind != "adapter":
        return AdaptedLocation(location, folders)
    return AdaptedLocation(resolve_base_of_adapter(config, location), (location.source, *folders))


def resolve_adapter(config: ModelConfig, name: str) -> Path:
    """Return the folder on this disk that holds a saved adapter; one on a hub is downloaded first.

    What is downloaded stays the same for the life of this process, however often it is asked for.

    Raises:
        ModelError: The path does not exist or holds no adapter, or the hub does not give it.
    """
    folder = Path(name).expanduser()
    if not folder.exists():
        if _looks_like_path(name):
            raise ModelError(
                f"adapter_name_or_path: {name} does not exist. Give an adapter folder or a hub id."
                f"{render_similar_path(name)}"
            )
        # `model_revision` is a version of the model. An adapter is a repository of its own.
        if config.is_on_modelscope:
            folder = _download_from_modelscope(config, name, "adapter_name_or_path", revision="master")
        else:
            folder = _download_adapter(config, name)
    if config.adapter_folder is not None:
        folder /= config.adapter_folder
    if not (folder / ADAPTER_FILE).is_file():
        inside = "" if config.adapter_folder is None else f" in {config.adapter_folder} (adapter_folder)"
        raise ModelError(
            f"adapter_name_or_path: {name} holds no {ADAPTER_FILE}{inside}. Give the folder that a LoRA run wrote, or "
            "model_name_or_path if it is a whole model."
        )
    return folder


def _looks_like_path(name: str) -> bool:
    return name.startswith(("/", ".", "~")) or name.endswith(".gguf") or name.count("/") > 1 or "\\" in name


def _resolve_path(name: str, path: Path) -> ModelLocation:
    if path.is_file():
        if path.suffix == ".gguf":
            return ModelLocation("gguf", name, path)
        raise ModelError(f"model_name_or_path: {name} is a file, but not a GGUF file. Give the folder that it is in.")
    if (path / "config.json").is_file():
        return ModelLocation("folder", name, path)
    if (path / ADAPTER_FILE).is_file():
        return ModelLocation("adapter", name, path)
    gguf_file = find_gguf_file(path)
    if gguf_file is not None:
        return ModelLocation("gguf", name, gguf_file)
    found = ", ".join(sorted(entry.name for entry in path.iterdir())[:8]) or "nothing"
    raise ModelError(
        f"model_name_or_path: {name} is not a model: it has no config.json, no {ADAPTER_FILE} and no .gguf file "
        f"(found: {found}). Give the folder that holds config.json."
    )


def _download_adapter(config: ModelConfig, name: str) -> Path:
    watch_hub()
    try:
        return _snapshot(name, config.cache_dir, config.hf_hub_token, config.adapter_folder)
    except (OSError, ValueError) as error:  # the hub's and the network's errors are OSErrors
        raise hub_error(name, config, error, "adapter_name_or_path") from error


@lru_cache(maxsize=16)
def _snapshot(name: str, cache_dir: str | None, token: str | None, inside: str | None) -> Path:
    chosen = {"ignore_patterns": _NOT_OF_AN_ADAPTER} if inside is None else {"allow_patterns": [f"{inside}/*"]}
    return Path(snapshot_download(name, cache_dir=cache_dir, token=token, **chosen))


def _download_from_modelscope(
    config: ModelConfig, name: str, setting: str = "model_name_or_path", revision: str | None = None
) -> Path:
    modelscope = require("modelscope", "modelscope", f"download {name} from ModelScope")
    if config.ms_hub_token:
        modelscope.HubApi().login(config.ms_hub_token)
    # "master" is its name for "main"
    revision = revision or ("master" if config.model_revision == "main" else config.model_revision)
    try:
        return Path(modelscope.snapshot_download(name, revision=revision, cache_dir=config.cache_dir))
    except (OSError, ValueError) as error:  # requests' errors are OSErrors
        raise ModelError(
            f"{setting}: {name} (revision {revision}) cannot be fetched from ModelScope: {error}. "
            "Check the id and the network, or give a local folder."
        ) from error


def hub_error(name: str, config: ModelConfig, error: Exception, setting: str = "model_name_or_path") -> ModelError:
    """Explain a failed look-up on Hugging Face in terms of the settings."""
    version = f" (revision {config.model_revision})" if setting == "model_name_or_path" else ""
    trouble = find_network_trouble()
    if trouble is not None:
        return ModelError(
            f"{setting}: {name}{version} is neither a path here nor in the cache, and {trouble}. Without a network, "
            f"fetch it elsewhere (hf download {name} --local-dir FOLDER), and give the folder. If only this hub is out "
            "of reach, set the variable HF_ENDPOINT to the address of a mirror, or set model_hub: modelscope."
            f"{render_similar_path(name)}"
        )
    offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes"}
    first = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
    reason = "HF_HUB_OFFLINE is set and it is not in the cache" if offline else first
    return ModelError(
        f"{setting}: {name}{version} cannot be loaded from Hugging Face: {reason}. "
        "It is neither a local path nor a reachable hub id: check the spelling, the network and hf_hub_token, set "
        f"model_hub: modelscope, or give a local folder.{render_similar_path(name)}"
    )
