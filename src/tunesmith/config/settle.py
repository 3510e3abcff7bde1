"""Written entries to typed values: the last entry for a key wins, and every entry is checked."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tunesmith.config.coercion import MappingOf, MismatchError, render_value
from tunesmith.config.entries import Entry
from tunesmith.config.inline_sets import name_inline_sets
from tunesmith.config.llamafactory import describe_known_value, find_new_name, known_keys
from tunesmith.config.run_config import Origin
from tunesmith.config.sections import SECTION_NAMES
from tunesmith.config.settings import Setting, all_settings
from tunesmith.config.suggestions import render_suggestion
from tunesmith.errors import ConfigProblem


@dataclass(slots=True)
class Settled:
    """Typed values by key, and what could not be understood."""

    values: dict[str, object] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    places: dict[str, dict[tuple[str, ...], str]] = field(default_factory=dict)
    """Where the inner parts of nested values stand."""

    problems: list[ConfigProblem] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    """Keys with a value that could not be understood; rules about them would only add noise."""


def settle_entries(entries: Sequence[Entry], *, only_names: bool = False) -> Settled:
    """Check entries in order of rising precedence.

    Args:
        entries: What was written, weakest first.
        only_names: Check no more than that the keys exist (for sections of stages that are not supported yet).
    """
    settled = Settled()
    for entry in name_inline_sets(entries):
        key = entry.key.split(".")[0]
        setting = all_settings().get(key)
        if setting is None:
            _refuse_unsupported(entry, settled, only_names=only_names)
        elif not only_names:
            _settle(entry, setting, settled)
    return settled


def _settle(entry: Entry, setting: Setting, settled: Settled) -> None:
    where = entry.origin.where
    try:
        value = _convert_part(entry, setting, settled) if "." in entry.key else setting.convert(entry.value)
    except MismatchError as error:
        place = entry.places.get(error.path, where)
        name = ".".join((setting.key, *error.path))
        shown = "set to something else" if setting.secret else render_value(_inner(_nest(entry), error.path))
        allowed = setting.render_allowed() if not error.path else "a single value"
        later = describe_known_value(setting.key, entry.value)
        hint = "" if later else error  # who knows what it is has not mistyped another
        settled.problems.append(ConfigProblem(place, f"`{name}` is {shown}{later}; allowed is {allowed}.{hint}"))
        settled.broken.add(setting.key)
        return
    settled.values[setting.key] = value
    settled.origins[setting.key] = entry.origin
    earlier = settled.places.get(setting.key, {}) if "." in entry.key else {}
    settled.places[setting.key] = {**earlier, **entry.places}


def _convert_part(entry: Entry, setting: Setting, settled: Settled) -> object:
    """Set one part of a mapping, keeping what earlier entries said about the others."""
    if not setting.takes_mapping:
        raise MismatchError(f" It has no parts, so `{entry.key}` means nothing.")
    added = next(kind for kind in setting.kinds if isinstance(kind, MappingOf)).convert(_nest(entry))
    earlier = settled.values.get(setting.key) or {}
    return _merge(earlier, added) if isinstance(earlier, dict) else added


def _nest(entry: Entry) -> object:
    """Return what an entry gives its setting: `a.b.c=1` gives `a` the mapping `{b: {c: 1}}`."""
    value: object = entry.value
    for name in reversed(entry.key.split(".")[1:]):
        value = {name: value}
    return value


def _merge(earlier: dict[str, object], added: dict[str, object]) -> dict[str, object]:
    merged = dict(earlier)
    for name, value in added.items():
        before = merged.get(name)
        merged[name] = _merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def _inner(value: object, path: tuple[str, ...]) -> object:
    for name in path:
        if isinstance(value, dict):
            value = value[name]
        elif isinstance(value, list | tuple):
            value = value[int(name)]
        else:  # a mapping in one word, `{a: {b: 1}}`, which is shown as it was written
            return value
    return value


def _refuse_unsupported(entry: Entry, settled: Settled, *, only_names: bool) -> None:
    where, key = entry.origin.where, entry.key
    known = known_keys().get(key)
    if known is not None:
        if not only_names and not known.accepts(entry.value):
            message = f"`{key}` is {render_value(entry.value)}; this key is {known.render_refusal()}."
            settled.problems.append(ConfigProblem(where, message))
        return
    new_name = find_new_name(key)
    if new_name is not None:
        settled.problems.append(ConfigProblem(where, f"`{key}` is called `{new_name}` here; rename it."))
        return
    if key.split(".")[0] in SECTION_NAMES:
        message = (
            f"`{key.split('.')[0]}` is a section of a file and holds settings; give those themselves, by their keys."
        )
        settled.problems.append(ConfigProblem(where, message))
        return
    hint = render_suggestion(key, [*all_settings(), *known_keys(), *SECTION_NAMES])
    settled.problems.append(
        ConfigProblem(where, f"`{key}` is not a setting.{hint or ' See docs/options.md for all of them.'}")
    )
