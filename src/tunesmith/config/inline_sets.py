"""Data sets that are described where they are named: `dataset: [identity, {file_name: chats.jsonl}]`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from tunesmith.config.entries import Entry

SETTINGS = ("dataset", "eval_dataset")
_PLACES = ("file_name", "cloud_file_name", "hf_hub_url", "ms_hub_url", "om_hub_url")


def name_inline_sets(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries with a name in place of every description, and the descriptions in the catalogue.

    A description takes its name from its key `name`, or else from its file or repository. What is written to the run
    folder is then an ordinary configuration: names in `dataset`, descriptions under `dataset_info`.

    Args:
        entries: What was written, weakest first.
    """
    named: list[Entry] = []
    described: list[Entry] = []
    taken = set(_written_names(entries))
    for entry in entries:
        value = entry.value
        if entry.key not in SETTINGS or not isinstance(value, list | tuple):
            named.append(entry)
            continue
        names = []
        for index, item in enumerate(value):
            if isinstance(item, Mapping):
                name = _free_name(_find_name(item), taken)
                described.append(_describe(entry, str(index), name, item))
                names.append(name)
            else:
                names.append(item)
        named.append(Entry(entry.key, names, entry.origin, entry.places))
    return named + described


def _written_names(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the names that somebody else means something by: a description must not take one over."""
    for entry in entries:
        key, _, part = entry.key.partition(".")
        if key == "dataset_info":
            yield from [part.partition(".")[0]] if part else entry.value if isinstance(entry.value, Mapping) else ()
        elif key in SETTINGS:
            values = entry.value if isinstance(entry.value, list | tuple) else str(entry.value).split(",")
            yield from (str(item).strip() for item in values if not isinstance(item, Mapping))


def _describe(entry: Entry, index: str, name: str, item: Mapping[str, object]) -> Entry:
    description = {key: value for key, value in item.items() if key != "name"}
    return Entry(f"dataset_info.{name}", description, entry.origin, dict(_moved(entry, index, name)))


def _moved(entry: Entry, index: str, name: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the places of the inner parts of one description, by their path in the catalogue."""
    for path, place in entry.places.items():
        if path[0] == index:
            yield (name, *path[1:]), place


def _find_name(item: Mapping[str, object]) -> str:
    if item.get("name"):
        stem = str(item["name"])
    else:
        place = next((str(item[key]) for key in _PLACES if item.get(key)), "inline")
        stem = PurePosixPath(place.replace("\\", "/")).name.split(".")[0]
    return re.sub(r"[^\w-]+", "_", stem).strip("_") or "inline"  # a dot would set a part of a mapping


def _free_name(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    taken.add(free)
    return free
