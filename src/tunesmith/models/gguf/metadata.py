"""What a GGUF file says about itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tunesmith.errors import ModelError
from tunesmith.runtime.optional import require

# Token types of llama.cpp's vocabulary (gguf.TokenType).
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True)
class GgufMetadata:
    """The key-value section of one file."""

    path: Path
    values: Mapping[str, Any]

    @property
    def architecture(self) -> str:
        """Name of the model family, such as `llama` or `qwen2`."""
        return str(self.values["general.architecture"])

    def find(self, key: str) -> Any:
        """Return a value, or `None` if the file does not have it. `{arch}` stands for the architecture."""
        return self.values.get(key.replace("{arch}", self.architecture))

    def get(self, key: str) -> Any:
        """Return a value.

        Raises:
            ModelError: The file does not have it.
        """
        value = self.find(key)
        if value is None:
            raise ModelError(
                f"{self.path}: the GGUF file has no {key}, which is needed to train from it. "
                "Use a file that was made from the full model, or the original Hugging Face folder."
            )
        return value


def find_gguf_file(folder: Path) -> Path | None:
    """Return the GGUF file in a folder that holds no other model, or `None`.

    Raises:
        ModelError: There are several, and nothing says which one is meant.
    """
    if (folder / "config.json").is_file():
        return None
    files = sorted(folder.glob("*.gguf"))
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise ModelError(
            f"model_name_or_path: {folder} holds {len(files)} GGUF files ({names}). Give the path of one of them."
        )
    return files[0] if files else None


def read_metadata(path: Path) -> GgufMetadata:
    """Read the key-value section of a GGUF file; the weights are left alone.

    Raises:
        ModelError: The file is damaged or no GGUF file.
        MissingDependencyError: The package gguf is not installed.
    """
    return GgufMetadata(path, {name: field.contents() for name, field in open_reader(path).fields.items()})


def open_reader(path: Path) -> Any:
    """Open a file with the gguf package; reading one with 100k tokens takes seconds, so the last one is remembered."""
    return _open_reader(path.resolve(), path.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _open_reader(path: Path, modified_ns: int) -> Any:
    gguf = require("gguf", "gguf", "read GGUF files")
    try:
        return gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError) as error:
        raise ModelError(
            f"model_name_or_path: {path} is not a readable GGUF file ({error}). Download it again or give another one."
        ) from error


def forget_reader() -> None:
    """Let go of the remembered file and the memory of its fields."""
    _open_reader.cache_clear()
