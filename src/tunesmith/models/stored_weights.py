"""Single weights of a model as they lie on this disk, without loading the model."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from huggingface_hub import snapshot_download
from safetensors import safe_open
from torch import Tensor

from tunesmith.config.model import ModelConfig
from tunesmith.errors import ModelError
from tunesmith.models.locations import ModelLocation


class StoredWeights:
    """The safetensors files of a model, opened for reading single tensors. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = ExitStack()
        self._places: Mapping[str, Any] = {}

    def __enter__(self) -> Self:
        paths = sorted(self._folder.glob("*.safetensors"))
        files = [self._files.enter_context(safe_open(path, framework="pt", device="cpu")) for path in paths]
        self._places = {name: file for file in files for name in file.keys()}  # noqa: SIM118 - no mapping
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def read(self, name: str) -> Tensor:
        """Return one weight by its full name.

        Raises:
            ModelError: No file has it.
        """
        if name not in self._places:
            raise ModelError(
                f"init_lora_weights: the exact weight {name} is not among the safetensors files of {self._folder}, and "
                "loftq compares with it. Set init_lora_weights: default."
            )
        weight: Tensor = self._places[name].get_tensor(name)
        return weight


def find_folder(location: ModelLocation, config: ModelConfig) -> Path:
    """Return the folder on this disk that a loaded model came from; for a hub id that is the cache."""
    if location.path is not None:
        return location.path if location.path.is_dir() else location.path.parent
    return Path(
        snapshot_download(
            location.name, revision=config.model_revision, cache_dir=config.cache_dir, local_files_only=True
        )
    )
