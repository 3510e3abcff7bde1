"""The catalogue of data sets: `dataset_info.json`, entries written in the configuration, and names that say a place."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

from tunesmith.config.catalogue import (
    HUB_PREFIX,
    MARK_COLUMNS,
    MEDIA_COLUMNS,
    ONLINE,
    REMOTE_PREFIX,
    Formatting,
    explain_invalid_json,
)
from tunesmith.data.sources.compression import find_file_type
from tunesmith.data.sources.dataset_spec import (
    BadRowPolicy,
    DatasetEntry,
    DatasetSpec,
    TurnOrderPolicy,
    complete_columns,
    complete_tags,
    parse_entry,
)
from tunesmith.data.sources.detection import Detection, detect_format
from tunesmith.data.sources.files import CATALOG_FILE, has_match, is_remote
from tunesmith.data.sources.hubs import HubAccess, download_catalogue
from tunesmith.data.sources.json_rows import DECODER
from tunesmith.data.sources.locations import locate_rows
from tunesmith.data.sources.problems import UnreadableValue
from tunesmith.data.sources.rows import peek_rows
from tunesmith.errors import DataError

_LOOKED_AT = 20
"""Rows of which one has to tell the format: the first may be empty."""


class CatalogSettings(Protocol):
    """The part of the data settings that says where data sets are and how all of them are read."""

    @property
    def dataset_dir(self) -> str: ...  # noqa: D102

    @property
    def dataset_info(self) -> Mapping[str, Any] | None: ...  # noqa: D102

    @property
    def row_variables(self) -> Mapping[str, str]: ...  # noqa: D102

    @property
    def stringify_values(self) -> bool: ...  # noqa: D102

    @property
    def bad_rows(self) -> BadRowPolicy: ...  # noqa: D102

    @property
    def turn_order_policy(self) -> TurnOrderPolicy: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class RawEntry:
    """What stands in a catalogue under one name, and where."""

    values: object
    place: str


@dataclass(frozen=True)
class Catalog:
    """Named data sets, and how all of them are read."""

    folder: Path
    entries: Mapping[str, RawEntry]
    """Entries as they stand. They are checked when they are used: the others are no matter of this run."""

    row_variables: tuple[tuple[str, str], ...] = ()
    stringify_values: bool = False
    turn_order_policy: TurnOrderPolicy = "merge"
    bad_rows: BadRowPolicy = "error"
    hub: HubAccess = field(default_factory=HubAccess)
    is_online: bool = False
    """Whether every name that is not listed is a repository on a hub."""

    def resolve(self, name: str) -> DatasetSpec:
        """Return the data set of a name of the catalogue, or of a file, folder, pattern, address or repository.

        Rows of a hub are downloaded; where the format is not declared, the first row is read.

        Raises:
            DataError: The name is not known (nearest ones are named), its files are missing, or the entry has unknown
                keys or wrong types, or needs something that is not supported yet.
        """
        listed = self.entries.get(name)
        if listed is not None:
            return self._build(parse_entry(name, listed.values, listed.place))
        if name.startswith(HUB_PREFIX) or self.is_online:
            key = "ms_hub_url" if self.hub.prefers_modelscope else "hf_hub_url"
            return self._build(DatasetEntry(name=name, sources={key: name.removeprefix(HUB_PREFIX)}))
        place = self._find_place(name)
        if place is None:
            raise DataError(self._unknown_name(name))
        return self._build(DatasetEntry(name=name, sources={"file_name": place}))

    def _build(self, entry: DatasetEntry) -> DatasetSpec:
        where = f"data set {entry.name!r}"
        if entry.later_keys:
            raise DataError(f"{where} uses {', '.join(entry.later_keys)}, which is known but not yet supported")
        place = locate_rows(entry, self.folder, self.hub, where)
        rows = peek_rows(place.files, _LOOKED_AT)
        columns = next((row.values for row in rows if row.values), {})
        if entry.formatting is not None:
            found = Detection(entry.formatting, "")
        elif rows:
            values = [row.values for row in rows]
            named = " (its first line names the columns)" if find_file_type(rows[0].file) == ".csv" else ""
            found = detect_format(values, entry.columns, entry.tags, f"{where}, {rows[0].file}{named}")
        else:
            found = Detection("alpaca", "")  # a data set without rows is refused with words of its own
        return DatasetSpec(
            name=entry.name,
            files=place.files,
            formatting=found.formatting,
            columns=complete_columns(found.formatting, {**found.columns, **entry.columns}, where),
            tags=complete_tags(found.formatting, entry.tags, where),
            ranking=entry.ranking,
            num_samples=entry.num_samples,
            first_row=place.first_row,
            last_row=place.last_row,
            row_variables=self.row_variables,
            stringify_values=self.stringify_values,
            turn_order_policy=self.turn_order_policy,
            bad_rows=self.bad_rows,
            declared=tuple(column for column in entry.columns.values() if column),
            notes=(*place.notes, *_describe_reading(entry, found, columns)),
        )

    def _find_place(self, name: str) -> str | None:
        """Return a name that says itself where rows are, in the form that `file_name` has."""
        if is_remote(name):
            return name
        for path in (Path(name), self.folder / name):
            if path.exists() or (has_match(path)):
                return str(path.absolute())
        return None

    def _unknown_name(self, name: str) -> str:
        known = sorted(self.entries)
        near = get_close_matches(name, known, n=3)
        if near:
            hint = f"did you mean {' or '.join(near)}?"
        elif known:
            shown = ", ".join(known[:20])
            hint = f"known: {shown}{' ...' if len(known) > 20 else ''}"
        else:
            hint = f"the catalogue is empty ({self.folder / CATALOG_FILE} is missing)"
        return (
            f"data set {name!r} is neither in the catalogue nor a path; {hint}. "
            f"Data sets are listed in {self.folder / CATALOG_FILE} (setting dataset_dir) or under dataset_info; "
            f"{HUB_PREFIX}owner/name names one on a hub."
        )


def load_catalog(settings: CatalogSettings, hub: HubAccess | None = None) -> Catalog:
    """Read the catalogue: the file in `dataset_dir`, with the entries of `dataset_info` put over it.

    A missing file is fine: data sets may be named by their place or stand in the configuration.

    Args:
        settings: Where data sets are, and how all of them are read.
        hub: How hubs are reached; as their libraries do by themselves when not given.

    Raises:
        DataError: The file is not a JSON object, or a catalogue on a hub cannot be fetched.
    """
    hub = hub or HubAccess()
    directory = settings.dataset_dir
    is_online = directory == ONLINE
    folder, path = Path(directory), Path(directory) / CATALOG_FILE
    if is_online:
        folder = path = Path()
    elif directory.startswith(REMOTE_PREFIX):
        path = download_catalogue(directory.removeprefix(REMOTE_PREFIX), CATALOG_FILE, hub)
        folder = path.parent
    entries: dict[str, RawEntry] = {}
    if path.is_file():
        entries.update({name: RawEntry(values, str(path)) for name, values in _read_catalog(path).items()})
    entries.update({name: RawEntry(values, "dataset_info") for name, values in (settings.dataset_info or {}).items()})
    return Catalog(
        folder=folder,
        entries=entries,
        row_variables=tuple(sorted(settings.row_variables.items())),
        stringify_values=settings.stringify_values,
        turn_order_policy=settings.turn_order_policy,
        bad_rows=settings.bad_rows,
        hub=hub,
        is_online=is_online,
    )


def _read_catalog(path: Path) -> Mapping[str, object]:
    try:
        content = DECODER.decode(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: not valid JSON: {explain_invalid_json(error)}") from error
    except (OSError, ValueError, RecursionError) as error:  # no permission, other encodings, endless brackets
        raise DataError(f"{path}: the JSON cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected an object of data sets by name, found {type(content).__name__}")
    twice = [name for name, entry in content.items() if isinstance(entry, UnreadableValue)]
    if twice:
        raise DataError(f"{path}: the data set {', '.join(map(repr, twice))} is there twice; rename or remove one")
    return content


def _describe_reading(entry: DatasetEntry, found: Detection, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield what nobody said in so many words: a format that the rows told, and names at their defaults."""
    if found.reason:
        renamed = ", ".join(f"{key}={column}" for key, column in found.columns.items())
        yield f"format {found.formatting}, since {found.reason}{f' (so {renamed})' if renamed else ''}"
    for column in MEDIA_COLUMNS:
        if row.get(column):
            yield f"column {column!r} is not read: pictures, films and sound are not yet supported, only the text is"
    kept = asdict(complete_columns(found.formatting, entry.columns, ""))
    for key in _UNREAD[found.formatting]:
        if kept[key] is None and row.get(key) and key not in entry.columns:
            yield f"column {key!r} is not read, since the entry does not name it; `columns: {{{key}: {key}}}` does"
    for key in MARK_COLUMNS:
        name = kept.pop(key)
        if key not in entry.columns and row.get(name) is not None and found.formatting != "text":
            yield _describe_marks(name, row[name])
    columns = [f"{key}={name}" for key, name in kept.items() if name in row and key not in entry.columns]
    if entry.columns and columns:
        yield f"columns that its entry does not name keep their defaults: {', '.join(columns)} {_DIFFERENCE}"
    tags = asdict(complete_tags(found.formatting, entry.tags, ""))
    others = [f"{key}={name}" for key, name in tags.items() if key not in entry.tags]
    if entry.tags and others:
        yield f"tags that its entry does not name keep their defaults: {', '.join(others)} {_DIFFERENCE}"


def _describe_marks(column: str, value: object) -> str:
    if isinstance(value, list | tuple):
        return f"column {column!r} says of each turn whether it is learnt, for sft and kto"
    return f"column {column!r} is not used: what says whether turns are learnt is a list with an entry for each"


_UNREAD: Mapping[Formatting, tuple[str, ...]] = {
    "alpaca": ("history", "system", "tools"),
    "sharegpt": ("system", "tools"),
    "openai": ("system",),
    "text": (),
}
"""Columns that rows of a format may have and whose names have to be written down, as in LLaMA-Factory."""

_DIFFERENCE = "(LLaMA-Factory has none where some are named)"
