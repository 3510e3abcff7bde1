"""What one entry of a `dataset_info.json` says, checked and complete."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from tunesmith.config.catalogue import KEY_TYPES, MEDIA_COLUMNS, SOURCE_KEYS, Formatting, find_media_columns
from tunesmith.errors import DataError

BadRowPolicy = Literal["error", "skip"]
TurnOrderPolicy = Literal["error", "merge", "skip"]

Names = TypeVar("Names", "Columns", "Tags")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which column of a row holds what. Nothing: the row has no such thing."""

    prompt: str | None = None
    query: str | None = None
    response: str | None = None
    history: str | None = None
    messages: str | None = None
    system: str | None = None
    tools: str | None = None
    chosen: str | None = "chosen"
    rejected: str | None = "rejected"
    margin: str | None = "margin"
    """By how much the chosen completion of a pair is better, for rewards; rows need not have it."""

    kto_tag: str | None = "label"
    """Whether a completion is desirable, for stage `kto`."""

    train: str | None = "train"
    weight: str | None = "weight"
    loss_mask: str | None = "loss_mask"
    """Lists with an entry for each turn that say whether it is learnt; see `formats.marks`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """How a message says who speaks and what is said."""

    role_tag: str
    content_tag: str
    user_tag: str
    assistant_tag: str
    observation_tag: str
    function_tag: str
    system_tag: str


DEFAULT_COLUMNS: Mapping[Formatting, Columns] = {
    "alpaca": Columns(prompt="instruction", query="input", response="output"),
    "sharegpt": Columns(messages="conversations"),
    "openai": Columns(messages="messages", tools="tools"),
    "text": Columns(prompt="text"),
}

_SHAREGPT_TAGS = Tags(
    role_tag="from",
    content_tag="value",
    user_tag="human",
    assistant_tag="gpt",
    observation_tag="observation",
    function_tag="function_call",
    system_tag="system",
)
_OPENAI_TAGS = Tags(
    role_tag="role",
    content_tag="content",
    user_tag="user",
    assistant_tag="assistant",
    observation_tag="tool",
    function_tag="function",
    system_tag="system",
)
DEFAULT_TAGS: Mapping[Formatting, Tags] = {
    "alpaca": _SHAREGPT_TAGS,
    "sharegpt": _SHAREGPT_TAGS,
    "openai": _OPENAI_TAGS,
    "text": _SHAREGPT_TAGS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    """One data set: where its rows are and how they are read."""

    name: str
    files: tuple[Path, ...]
    formatting: Formatting = "alpaca"
    columns: Columns = DEFAULT_COLUMNS["alpaca"]
    tags: Tags = DEFAULT_TAGS["alpaca"]
    ranking: bool | None = None
    """Whether rows are pairs of completions; `None` where nobody says so, and the rows show it."""

    num_samples: int | None = None
    """Use exactly so many rows, drawn at random; rows repeat when there are fewer."""

    max_rows: int | None = None
    """Use so many rows at most: the first ones, or of those that `num_samples` draws."""

    first_row: int = 0
    last_row: int | None = None
    """Half-open range of rows over all files that `split` selects."""

    row_variables: tuple[tuple[str, str], ...] = field(default=())
    """Words that are filled into `{{name}}` places of the rows."""

    stringify_values: bool = False
    """Take numbers, lists and objects as their JSON text where a row should have text."""

    turn_order_policy: TurnOrderPolicy = "merge"
    """What becomes of turns in an order that cannot be learnt from."""

    bad_rows: BadRowPolicy = "skip"
    """What becomes of rows that are not what the data set says."""

    declared: tuple[str, ...] = ()
    """Columns that somebody wrote down, so that it is a mistake when no row has them."""

    notes: tuple[str, ...] = ()
    """How the rows are read, in words, where that was not said in so many words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetEntry:
    """An entry of a catalogue whose keys and types have been checked; files are not looked at yet."""

    name: str
    sources: Mapping[str, str]
    """Keys that say where the rows are, with their values."""

    formatting: Formatting | None = None
    """Nothing where the rows have to tell."""

    columns: Mapping[str, str | None] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    """What the entry names; see `complete_columns` and `complete_tags` for the rest."""

    ranking: bool | None = None
    num_samples: int | None = None
    split: str = "train"
    subset: str | None = None
    folder: str | None = None
    later_keys: tuple[str, ...] = ()
    """Keys in use that this version cannot follow. Refused when the entry is used, not when it is only listed."""


def parse_entry(name: str, raw: object, place: str) -> DatasetEntry:
    """Check one entry of a catalogue.

    Args:
        name: Name of the data set.
        raw: What stands in the file.
        place: Where it stands, for messages.

    Raises:
        DataError: All problems of the entry: unknown keys with the nearest known one, wrong types, unknown formats.
    """
    where = f"{place}, data set {name!r}"
    if not isinstance(raw, Mapping):
        raise DataError(f"{where}: expected an object with file_name, columns ..., found {type(raw).__name__}")
    problems = _unknown_keys(raw, tuple(KEY_TYPES))
    problems += [
        f"{key} is {raw[key]!r}; expected {_type_name(expected)}"
        for key, expected in KEY_TYPES.items()
        if raw.get(key) is not None and not _has_type(raw[key], expected)
    ]
    if problems:
        raise DataError(f"{where}: " + "; ".join(problems))
    formatting = _parse_formatting(raw["formatting"], where) if raw.get("formatting") else None
    num_samples = raw.get("num_samples")
    if num_samples is not None and num_samples < 1:
        raise DataError(f"{where}: num_samples is {num_samples}; it must be 1 or more")
    columns, tags = raw.get("columns") or {}, raw.get("tags") or {}
    known_columns = {key: value for key, value in columns.items() if key not in MEDIA_COLUMNS}
    # Every format has the same keys, so that they can be checked before the format is known.
    complete_columns(formatting or "alpaca", known_columns, where)
    complete_tags(formatting or "alpaca", tags, where)
    return DatasetEntry(
        name=name,
        sources={key: raw[key] for key in SOURCE_KEYS if raw.get(key)},
        formatting=formatting,
        columns=known_columns,
        tags=tags,
        ranking=raw.get("ranking"),
        num_samples=num_samples,
        split=raw.get("split") or "train",
        subset=raw.get("subset"),
        folder=raw.get("folder"),
        later_keys=tuple(f"columns.{key}" for key in find_media_columns(raw)),
    )


def complete_columns(formatting: Formatting, given: Mapping[str, Any], where: str) -> Columns:
    """Return the columns of a format with what an entry names put over them; LLaMA-Factory empties the rest instead.

    Raises:
        DataError: The entry names unknown columns, or not as text.
    """
    return _merged(DEFAULT_COLUMNS[formatting], given, f"{where}, columns", MEDIA_COLUMNS)


def complete_tags(formatting: Formatting, given: Mapping[str, Any], where: str) -> Tags:
    """Return the tags of a format with what an entry names put over them; LLaMA-Factory empties the rest instead.

    Raises:
        DataError: The entry names unknown tags, or not as text.
    """
    return _merged(DEFAULT_TAGS[formatting], given, f"{where}, tags")


def _parse_formatting(name: str, where: str) -> Formatting:
    for formatting in get_args(Formatting):
        if name == formatting:
            return formatting  # type: ignore[no-any-return]
    near = get_close_matches(name, get_args(Formatting), n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise DataError(f"{where}: formatting is {name!r}{hint}; known: {', '.join(get_args(Formatting))}")


def _merged(defaults: Names, given: Mapping[str, Any], where: str, also_known: tuple[str, ...] = ()) -> Names:
    names: tuple[str, ...] = tuple(entry.name for entry in fields(defaults))
    problems = _unknown_keys(given, (*names, *also_known))
    optional = isinstance(defaults, Columns)
    problems += [
        f"{key} is {value!r}; expected the name of a column as text"
        for key, value in given.items()
        if key in names and not (isinstance(value, str) or (value is None and optional))
    ]
    if problems:
        raise DataError(f"{where}: " + "; ".join(problems))
    values = {name: getattr(defaults, name) for name in names}
    return type(defaults)(**{**values, **given})


def _unknown_keys(given: Mapping[str, Any], known: tuple[str, ...]) -> list[str]:
    problems = []
    for key in given:
        if key in known:
            continue
        near = get_close_matches(str(key), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        problems.append(f"unknown key {key!r} ({hint})")
    return problems


def _has_type(value: object, expected: type) -> bool:
    if expected is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, expected)


def _type_name(expected: type) -> str:
    return {str: "text", bool: "true or false", int: "a whole number", Mapping: "an object"}[expected]
