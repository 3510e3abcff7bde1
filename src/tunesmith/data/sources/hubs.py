"""Data sets on Hugging Face and ModelScope: which files of a repository hold the rows, and those files on this disk.

The library `datasets` says which files belong to a configuration and a split. They are then read like local files, so
that rows from a hub follow the same rules: nothing is inferred from one row for another.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from tunesmith.config.model import ModelConfig
from tunesmith.errors import DataError
from tunesmith.runtime.hub import find_network_trouble, watch_hub
from tunesmith.runtime.optional import require

_HUB_FILE = re.compile(r"hf://datasets/(?P<repo>[^@]+)@(?P<revision>[^/]+)/(?P<file>.+)")
_READABLE_KINDS = ("json", "csv", "parquet", "arrow", "text")
"""Kinds of repositories that `datasets` finds rows of text in; the others hold images, sound or archives."""


@dataclass(frozen=True, slots=True)
class HubAccess:
    """How hubs are reached."""

    prefers_modelscope: bool = False
    hf_token: str | None = None
    ms_token: str | None = None
    cache_dir: str | None = None

    @classmethod
    def of(cls, config: ModelConfig) -> "HubAccess":
        """Return what the settings of the model say of hubs; they hold for data, too."""
        return cls(config.is_on_modelscope, config.hf_hub_token, config.ms_hub_token, config.cache_dir)


@dataclass(frozen=True, slots=True)
class HubRepository:
    """A data set on a hub."""

    hub: Literal["huggingface", "modelscope"]
    name: str
    """`owner/name`."""

    subset: str | None = None
    folder: str | None = None


def find_hub_files(repository: HubRepository, splits: tuple[str, ...], access: HubAccess, where: str) -> list[Path]:
    """Download the files of some splits, as far as they are not on this disk yet, and return them in order.

    Args:
        repository: The data set.
        splits: Names of splits, one after the other.
        access: How the hub is reached.
        where: The data set, for messages.

    Raises:
        DataError: There is no such repository, configuration or split, it cannot be reached, or it holds no rows.
        MissingDependencyError: The package for ModelScope is not installed.
    """
    files = _data_files(_load_builder(repository, access, where), where)
    missing = [split for split in splits if split not in files]
    if missing:
        raise DataError(
            f"{where}: {repository.name} has no split {missing[0]!r}; it has {', '.join(files)}; set `split`"
        )
    names = [name for split in splits for name in files[split]]
    try:
        return [_obtain(name, access) for name in names]
    except (OSError, ValueError) as error:  # the hub's and the network's errors are OSErrors
        raise _unreachable(repository, error, where) from error


def download_catalogue(repo: str, file_name: str, access: HubAccess) -> Path:
    """Return a catalogue that stands in a data repository of Hugging Face, on this disk."""
    from huggingface_hub import hf_hub_download

    watch_hub()
    try:
        path = hf_hub_download(repo, file_name, repo_type="dataset", token=access.hf_token, cache_dir=access.cache_dir)
    except (OSError, ValueError) as error:
        reason = find_network_trouble() or error
        raise DataError(f"dataset_dir: the catalogue {file_name} of {repo} cannot be fetched: {reason}") from error
    return Path(path)


def _load_builder(repository: HubRepository, access: HubAccess, where: str) -> Any:
    import datasets

    source, token = repository.name, access.hf_token
    if repository.hub == "modelscope":
        source, token = str(_download_from_modelscope(repository, access, where)), None
    else:
        watch_hub()
    try:
        return datasets.load_dataset_builder(source, name=repository.subset, data_dir=repository.folder, token=token)
    except (OSError, ValueError) as error:
        raise _unreachable(repository, error, where) from error


def _data_files(builder: Any, where: str) -> dict[str, list[str]]:
    home, _, kind = type(builder).__module__.rpartition(".")
    if not home.startswith("datasets.packaged_modules.") or kind not in _READABLE_KINDS:
        raise DataError(
            f"{where}: the repository is of kind {kind}; those of {', '.join(_READABLE_KINDS)} files can be read"
        )
    return {str(split): [str(file) for file in files] for split, files in (builder.config.data_files or {}).items()}


def _obtain(name: str, access: HubAccess) -> Path:
    match = _HUB_FILE.fullmatch(name)
    if match is None:
        return Path(name)
    from huggingface_hub import hf_hub_download

    return Path(
        hf_hub_download(
            match["repo"],
            match["file"],
            repo_type="dataset",
            revision=unquote(match["revision"]),
            token=access.hf_token,
            cache_dir=access.cache_dir,
        )
    )


def _download_from_modelscope(repository: HubRepository, access: HubAccess, where: str) -> Path:
    modelscope = require("modelscope", "modelscope", f"download {repository.name} from ModelScope")
    if access.ms_token:
        modelscope.HubApi().login(access.ms_token)
    try:
        return Path(modelscope.dataset_snapshot_download(repository.name, cache_dir=access.cache_dir))
    except (OSError, ValueError) as error:
        raise _unreachable(repository, error, where) from error


def _unreachable(repository: HubRepository, error: Exception, where: str) -> DataError:
    hub = {"huggingface": "Hugging Face", "modelscope": "ModelScope"}[repository.hub]
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    subset = f" (subset {repository.subset})" if repository.subset else ""
    trouble = find_network_trouble() if repository.hub == "huggingface" else None
    if trouble is not None:
        return DataError(
            f"{where}: {repository.name}{subset} is not in the cache, and {trouble}. Without a network, fetch it "
            f"elsewhere (hf download --repo-type dataset {repository.name} --local-dir FOLDER), and name its files "
            "with file_name. If only this hub is out of reach, set the variable HF_ENDPOINT to the address of a "
            "mirror, or take ms_hub_url."
        )
    return DataError(
        f"{where}: {repository.name}{subset} cannot be had from {hub}: {first}. Check the spelling, the network and "
        "the token, or download the files and name them with file_name."
    )
