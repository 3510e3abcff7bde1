"""The catalogue of data sets: `dataset_info.json`, entries written in the configuration, and plain paths."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

from tunesmith.data.sources.dataset_spec import (
    DEFAULT_COLUMNS,
    DEFAULT_TAGS,
    DatasetEntry,
    DatasetSpec,
    Formatting,
    parse_entry,
)
from tunesmith.data.sources.files import CATALOG_FILE, find_files
from tunesmith.data.sources.rows import peek_row
from tunesmith.errors import DataError

_SPLIT = re.compile(r"train(?:\[(\d*):(\d*)\])?")


class CatalogSettings(Protocol):
    """The part of the data settings that says where data sets are."""

    @property
    def dataset_dir(self) -> str: ...  # noqa: D102

    @property
    def dataset_info(self) -> Mapping[str, Any] | None: ...  # noqa: D102

    @property
    def row_variables(self) -> Mapping[str, str]: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class RawEntry:
    """What stands in a catalogue under one name, and where."""

    values: object
    place: str


@dataclass(frozen=True)
class Catalog:
    """Named data sets of one folder."""

    folder: Path
    entries: Mapping[str, RawEntry]
    """Entries as they stand. They are checked when they are used: the others are no matter of this run."""

    row_variables: tuple[tuple[str, str], ...] = ()

    def resolve(self, name: str) -> DatasetSpec:
        """Return the data set of a name of the catalogue, or of a path to a file or folder.

        Raises:
            DataError: The name is not known (nearest ones are named), its files are missing, or the entry has unknown
                keys or wrong types, or needs something that is not supported yet.
        """
        entry = self.entries.get(name)
        if entry is not None:
            return self._from_entry(parse_entry(name, entry.values, entry.place))
        path = self._find_path(name)
        if path is None:
            raise DataError(self._unknown_name(name))
        return self._from_path(name, path)

    def _from_entry(self, entry: DatasetEntry) -> DatasetSpec:
        where = f"data set {entry.name!r}"
        if entry.later_keys:
            raise DataError(f"{where} uses {', '.join(entry.later_keys)}, which is known but not yet supported")
        if entry.file_name is None:
            raise DataError(f"{where} has no file_name; it is the file or folder in {self.folder} that holds the rows")
        first_row, last_row = _parse_split(entry.split, where)
        return DatasetSpec(
            name=entry.name,
            files=find_files(self.folder / entry.file_name, where),
            formatting=entry.formatting,
            columns=entry.columns,
            tags=entry.tags,
            ranking=entry.ranking,
            num_samples=entry.num_samples,
            first_row=first_row,
            last_row=last_row,
            row_variables=self.row_variables,
        )

    def _from_path(self, name: str, path: Path) -> DatasetSpec:
        files = find_files(path, f"data set {name!r}")
        formatting = _formatting_of(peek_row(files[0]), files[0])
        return DatasetSpec(
            name=name,
            files=files,
            formatting=formatting,
            columns=DEFAULT_COLUMNS[formatting],
            tags=DEFAULT_TAGS[formatting],
            row_variables=self.row_variables,
        )

    def _find_path(self, name: str) -> Path | None:
        return next((path for path in (Path(name), self.folder / name) if path.exists()), None)

    def _unknown_name(self, name: str) -> str:
        known = sorted(self.entries)
        near = get_close_matches(name, known, n=3)
        if near:
            hint = f"did you mean {' or '.join(near)}?"
        elif known:
            shown = ", ".join(known[:20])
            hint = f"known: {shown}{' ...' if len(known) > 20 else ''}"
        else:
            hint = (
                f"the catalogue is empty ({self.folder / CATALOG_FILE} {'has no entries' if known else 'is missing'})"
            )
        return (
            f"data set {name!r} is neither in the catalogue nor a path; {hint}. "
            f"Data sets are listed in {self.folder / CATALOG_FILE} (setting dataset_dir) or under dataset_info."
        )


def load_catalog(settings: CatalogSettings) -> Catalog:
    """Read the catalogue: the file in `dataset_dir`, with the entries of `dataset_info` put over it.

    A missing file is fine: data sets may be named by path or stand in the configuration.

    Raises:
        DataError: The file is not a JSON object.
    """
    directory = settings.dataset_dir
    if directory == "ONLINE" or directory.startswith("REMOTE:"):
        raise DataError(f"dataset_dir is {directory!r}: catalogues on a hub are known but not yet supported")
    folder = Path(directory)
    path = folder / CATALOG_FILE
    entries: dict[str, RawEntry] = {}
    if path.is_file():
        entries.update({name: RawEntry(values, str(path)) for name, values in _read_catalog(path).items()})
    entries.update({name: RawEntry(values, "dataset_info") for name, values in (settings.dataset_info or {}).items()})
    return Catalog(folder, entries, tuple(sorted(settings.row_variables.items())))


def _read_catalog(path: Path) -> Mapping[str, object]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from error
    except (OSError, ValueError, RecursionError) as error:  # no permission, other encodings, endless brackets
        raise DataError(f"{path}: the JSON cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected an object of data sets by name, found {type(content).__name__}")
    return content


def _parse_split(split: str, where: str) -> tuple[int, int | None]:
    """Return the half-open range of rows that `train` or `train[10:100]` selects."""
    match = _SPLIT.fullmatch(split)
    if match is None:
        raise DataError(
            f"{where}: split is {split!r}; local files have the split 'train', whole or as a range of rows such as "
            "'train[:1000]'"
        )
    first, last = match.groups()
    return int(first or 0), int(last) if last else None


def _formatting_of(row: Mapping[str, Any], path: Path) -> Formatting:
    """Return the format that the columns of a row speak for."""
    for column, formatting in _TELLTALE_COLUMNS.items():
        if column in row:
            return formatting
    raise DataError(
        f"{path}: the columns {', '.join(map(repr, row))} are none of {', '.join(_TELLTALE_COLUMNS)}. "
        "List the file in dataset_info with its formatting and columns."
    )


_TELLTALE_COLUMNS: Mapping[str, Formatting] = {
    "messages": "openai",
    "conversations": "sharegpt",
    "instruction": "alpaca",
    "text": "text",
}
