"""Where the rows of one data set are: the files on this disk or in a store, and the range of their rows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from tunesmith.data.sources.dataset_spec import DatasetEntry
from tunesmith.data.sources.files import build_path, find_files, is_remote
from tunesmith.data.sources.hubs import HubAccess, HubRepository, find_hub_files
from tunesmith.data.sources.ranges import Split, parse_split
from tunesmith.data.sources.rows import count_rows
from tunesmith.errors import DataError

_ON_HUBS = {"ms_hub_url": "modelscope", "hf_hub_url": "huggingface"}


@dataclass(frozen=True, slots=True)
class RowPlace:
    """Files, and the half-open range of the rows over all of them."""

    files: tuple[Path, ...]
    first_row: int = 0
    last_row: int | None = None
    notes: tuple[str, ...] = ()


def locate_rows(entry: DatasetEntry, folder: Path, access: HubAccess, where: str) -> RowPlace:
    """Return where the rows of an entry are; those of a hub are downloaded.

    Where an entry names several places, a hub comes first, then an object store, then a file, as in LLaMA-Factory.

    Raises:
        DataError: It names no place, or one that cannot be read.
    """
    split = parse_split(entry.split, where)
    hub = _choose_hub(entry, access)
    if hub is not None:
        return _locate_on_hub(entry, hub, split, access, where)
    sources = entry.sources
    for key in ("om_hub_url", "script_url"):
        if key in sources and "cloud_file_name" not in sources and "file_name" not in sources:
            _refuse(key, where)
    name = sources.get("cloud_file_name") or sources.get("file_name")
    if name is None:
        raise DataError(
            f"{where} names no place of its rows; set file_name (a file, folder or pattern in {folder}), "
            "cloud_file_name, hf_hub_url or ms_hub_url"
        )
    if "cloud_file_name" in sources and not is_remote(name):
        raise DataError(f"{where}: cloud_file_name is {name!r}; an address such as s3://bucket/rows.jsonl is expected")
    if split.names != ("train",):
        raise DataError(
            f"{where}: split is {entry.split!r}; files have the split 'train', whole or as a range of rows such as "
            "'train[:1000]'"
        )
    files = find_files(build_path(name, folder), where)
    unused = [key for key, value in (("subset", entry.subset), ("folder", entry.folder)) if value]
    notes = (f"{' and '.join(unused)} is not used: only repositories on a hub have one",) if unused else ()
    return _in_range(files, split, where, notes)


def _choose_hub(entry: DatasetEntry, access: HubAccess) -> Literal["ms_hub_url", "hf_hub_url"] | None:
    named = entry.sources
    if "ms_hub_url" in named and (access.prefers_modelscope or "hf_hub_url" not in named):
        return "ms_hub_url"
    return "hf_hub_url" if "hf_hub_url" in named else None


def _locate_on_hub(
    entry: DatasetEntry, key: Literal["ms_hub_url", "hf_hub_url"], split: Split, access: HubAccess, where: str
) -> RowPlace:
    hub: Literal["modelscope", "huggingface"] = "modelscope" if key == "ms_hub_url" else "huggingface"
    repository = HubRepository(hub, entry.sources[key], entry.subset, entry.folder)
    found = find_hub_files(repository, split.names, access, where)
    files = tuple(file for path in found for file in find_files(path, where))
    return _in_range(files, split, where)


def _in_range(files: tuple[Path, ...], split: Split, where: str, notes: tuple[str, ...] = ()) -> RowPlace:
    if len(split.names) > 1 and (split.first or split.last):
        raise DataError(f"{where}: a range of several splits at once is not possible; make a data set of each")
    first, last = split.resolve(lambda: sum(map(count_rows, files)))
    return RowPlace(files, first, last, notes)


def _refuse(key: str, where: str) -> NoReturn:
    reasons = {
        "om_hub_url": "the hub of Modelers is known but not yet supported; name hf_hub_url or ms_hub_url",
        "script_url": "loading scripts are not run any more, by the library `datasets` neither; name the files",
    }
    raise DataError(f"{where} has only {key}: {reasons[key]}")
