"""A light look at data set entries: their keys, nested ones too. Rows are looked at when they are read."""

import glob
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from tunesmith.config.suggestions import render_suggestion

CATALOGUE_FILE = "dataset_info.json"
HUB_PREFIX = "hub:"
"""Begins the name of a data set that is a repository on a hub."""

ONLINE = "ONLINE"
REMOTE_PREFIX = "REMOTE:"
"""Values of `dataset_dir` that are no folder."""

ENTRY_KEYS = (
    "hf_hub_url",
    "ms_hub_url",
    "om_hub_url",
    "script_url",
    "cloud_file_name",
    "file_name",
    "formatting",
    "ranking",
    "subset",
    "split",
    "folder",
    "num_samples",
    "columns",
    "tags",
)
COLUMN_KEYS = (
    "prompt",
    "query",
    "response",
    "history",
    "messages",
    "system",
    "tools",
    "images",
    "videos",
    "audios",
    "chosen",
    "rejected",
    "kto_tag",
)
TAG_KEYS = (
    "role_tag",
    "content_tag",
    "user_tag",
    "assistant_tag",
    "observation_tag",
    "function_tag",
    "system_tag",
)
_NESTED = {"columns": COLUMN_KEYS, "tags": TAG_KEYS}


class CatalogueError(ValueError):
    """A catalogue file cannot be read."""


def read_catalogue(folder: Path) -> list[str]:
    """Return the names of the data sets that a folder's catalogue lists; none when it has no catalogue.

    Raises:
        CatalogueError: The folder is a file, or its catalogue is there and is not a JSON object.
    """
    path = folder / CATALOGUE_FILE
    if folder.is_file():
        raise CatalogueError(f"`dataset_dir` is '{folder}', which is a file; name the folder that holds {path.name}.")
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:  # the last by endless brackets
        raise CatalogueError(f"the catalogue {path} cannot be read as JSON: {error}.") from error
    if not isinstance(content, dict):
        raise CatalogueError(f"the catalogue {path} has to map names to descriptions of data sets.")
    return list(content)


def is_place_of_rows(name: str, folder: Path) -> bool:
    """Return whether a name is no name of the catalogue but says itself where rows are.

    That is a file, folder or pattern, from here or from the catalogue's folder, an address in an object store, or a
    repository on a hub. The last two are not looked up here.
    """
    if name.startswith(HUB_PREFIX) or "://" in name:
        return True
    if glob.has_magic(name):
        return any(_has_match(place) for place in (name, str(folder / name)))
    return Path(name).exists() or (folder / name).exists()


def is_on_hub(dataset_dir: str) -> bool:
    """Return whether the catalogue is no folder of this disk: every name is a repository, or a repository has it."""
    return dataset_dir == ONLINE or dataset_dir.startswith(REMOTE_PREFIX)


def _has_match(pattern: str) -> bool:
    return next(glob.iglob(pattern, recursive=True), None) is not None


def check_entries(catalogue: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path to and a message about every key that means nothing.

    Args:
        catalogue: Data set entries by name, as in `dataset_info.json`.
    """
    for name, entry in catalogue.items():
        if not isinstance(entry, Mapping):
            yield (name,), "has to be a mapping such as {file_name: rows.jsonl}."
            continue
        yield from _unknown((name,), entry, ENTRY_KEYS)
        for part, known in _NESTED.items():
            inner = entry.get(part)
            if isinstance(inner, Mapping):
                yield from _unknown((name, part), inner, known)
            elif inner is not None:
                yield (name, part), f"has to be a mapping with keys from {', '.join(known)}."


def _unknown(
    path: tuple[str, ...], entry: Mapping[str, object], known: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    for key in entry:
        if key not in known:
            hint = render_suggestion(key, known) or f" Known are {', '.join(known)}."
            yield (*path, key), f"is not a key of a data set.{hint}"
