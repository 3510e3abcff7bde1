"""A light look at data set entries: their keys, nested ones too. Rows are looked at when they are read."""

import glob
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

from tunesmith.config.suggestions import render_suggestion

CATALOGUE_FILE = "dataset_info.json"
HUB_PREFIX = "hub:"
"""Begins the name of a data set that is a repository on a hub."""

ONLINE = "ONLINE"
REMOTE_PREFIX = "REMOTE:"
"""Values of `dataset_dir` that are no folder."""

Formatting = Literal["alpaca", "sharegpt", "openai", "text"]

KEY_TYPES: Mapping[str, type] = {
    "hf_hub_url": str,
    "ms_hub_url": str,
    "om_hub_url": str,
    "script_url": str,
    "cloud_file_name": str,
    "file_name": str,
    "formatting": str,
    "ranking": bool,
    "subset": str,
    "split": str,
    "folder": str,
    "num_samples": int,
    "columns": Mapping,
    "tags": Mapping,
}
"""Keys of an entry and what they hold; nothing (null) is as good as leaving one out."""

SOURCE_KEYS = ("ms_hub_url", "om_hub_url", "hf_hub_url", "script_url", "cloud_file_name", "file_name")
"""Keys of an entry that say where its rows are."""

MARK_COLUMNS = ("train", "weight", "loss_mask")
"""Columns with a list that says of each turn whether it is learnt."""

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
    "margin",
    "kto_tag",
    *MARK_COLUMNS,
)
MEDIA_COLUMNS = ("images", "videos", "audios")
"""Columns of pictures, films and sound, which nothing reads yet."""

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


def read_catalogue(folder: Path) -> dict[str, object]:
    """Return the entries that a folder's catalogue lists, by name; none when it has no catalogue.

    Raises:
        CatalogueError: The folder is a file, or its catalogue is there and is not a JSON object.
    """
    path = folder / CATALOGUE_FILE
    if folder.is_file():
        raise CatalogueError(f"`dataset_dir` is '{folder}', which is a file; name the folder that holds {path.name}.")
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except json.JSONDecodeError as error:
        reason = f"line {error.lineno}: {explain_invalid_json(error)}"
        raise CatalogueError(f"the catalogue {path} cannot be read as JSON: {reason}.") from error
    except (OSError, ValueError, RecursionError) as error:  # the last by endless brackets
        raise CatalogueError(f"the catalogue {path} cannot be read as JSON: {error}. Correct it.") from error
    if not isinstance(content, dict):
        raise CatalogueError(
            f"the catalogue {path} has to map names to descriptions of data sets, such as "
            '{"my_rows": {"file_name": "my_rows.json"}}.'
        )
    return content


def explain_invalid_json(error: json.JSONDecodeError) -> str:
    """Return what a parser found and where, and the usual reason: what people write by hand and JSON does not know."""
    text, at = error.doc, error.pos
    found = f"{error.msg} at column {error.colno}"
    if not text.strip():
        return "the file is empty; write {} for a catalogue without data sets"
    if text[at : at + 1] in ("#", "/"):
        return f"{found}; JSON has no comments"
    if text[at : at + 1] == "'":
        return f"{found}; JSON has double quotes only"
    if text[at : at + 1] in ("}", "]", ",") and text[:at].rstrip().endswith((",", "{", "[")):
        return f"{found}; there is a comma too many"
    return found


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


def find_missing_file(entry: object, folder: Path) -> str | None:
    """Return the `file_name` of an entry where that is where its rows are, and nothing is there.

    Args:
        entry: As it stands in a catalogue.
        folder: That of `dataset_dir`, in which files of entries are looked up.
    """
    if not isinstance(entry, Mapping) or [key for key in SOURCE_KEYS if entry.get(key)] != ["file_name"]:
        return None
    name = entry["file_name"]
    if not isinstance(name, str) or "://" in name:
        return None
    is_there = _has_match(str(folder / name)) if glob.has_magic(name) else (folder / name).exists()
    return None if is_there else name


def find_media_columns(entry: object) -> tuple[str, ...]:
    """Return the columns of an entry that hold what nothing reads yet, see `MEDIA_COLUMNS`."""
    columns = entry.get("columns") if isinstance(entry, Mapping) else None
    return tuple(key for key in MEDIA_COLUMNS if columns.get(key)) if isinstance(columns, Mapping) else ()


def is_on_hub(dataset_dir: str) -> bool:
    """Return whether the catalogue is no folder of this disk: every name is a repository, or a repository has it."""
    return dataset_dir == ONLINE or dataset_dir.startswith(REMOTE_PREFIX)


def _has_match(pattern: str) -> bool:
    return next(glob.iglob(pattern, recursive=True), None) is not None


def find_entry_problems(catalogue: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path to and a message about every key that means nothing and every value that cannot be meant.

    Args:
        catalogue: Data set entries by name, as in `dataset_info.json`.
    """
    for name, entry in catalogue.items():
        if isinstance(entry, Mapping):
            for path, message in _find_problems(entry):
                yield (name, *path), message
        else:
            yield (name,), "has to be a mapping such as {file_name: rows.jsonl}."


def _find_problems(entry: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], str]]:
    unknown = list(_unknown(entry, KEY_TYPES))
    yield from unknown
    for key, expected in KEY_TYPES.items():
        value = entry.get(key)
        if value is None:
            continue
        if key in _NESTED:
            yield from _find_unknown_names(key, value)
        elif not _has_type(value, expected):
            yield (key,), f"is {value!r}; it has to be {_TYPE_NAMES[expected]}."
        elif key == "formatting" and value not in get_args(Formatting):
            hint = render_suggestion(str(value), get_args(Formatting))
            yield (key,), f"is {value!r}; allowed is {', '.join(get_args(Formatting))}.{hint}"
        elif key == "num_samples" and isinstance(value, int) and value < 1:
            yield (key,), f"is {value}; allowed is 1 or more."
    if not unknown and not any(entry.get(key) for key in SOURCE_KEYS):
        yield (), "names no place of its rows; set file_name, cloud_file_name, hf_hub_url or ms_hub_url."


def _find_unknown_names(part: str, names: object) -> Iterator[tuple[tuple[str, ...], str]]:
    known = _NESTED[part]
    if not isinstance(names, Mapping):
        yield (part,), f"has to be a mapping with keys from {', '.join(known)}."
        return
    for path, message in _unknown(names, known):
        yield (part, *path), message
    for key, value in names.items():
        may_be_nothing = part == "columns" and value is None
        if key in known and not isinstance(value, str) and not may_be_nothing:
            yield (part, key), f"is {value!r}; it has to be a name, as text."


def _unknown(entry: Mapping[str, object], known: Collection[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    for key in entry:
        if key not in known:
            hint = render_suggestion(key, known) or f" Known are {', '.join(known)}."
            yield (key,), f"is not a key of a data set.{hint}"


def _has_type(value: object, expected: type) -> bool:
    return isinstance(value, expected) and not (expected is int and isinstance(value, bool))


_TYPE_NAMES: Mapping[type, str] = {str: "text", bool: "true or false", int: "a whole number"}
