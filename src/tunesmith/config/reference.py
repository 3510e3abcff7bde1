"""The options reference, generated from the same table and texts that check a configuration."""

import inspect

from tunesmith.config.descriptions import all_descriptions
from tunesmith.config.llamafactory import find_new_name, known_keys, renamed_keys
from tunesmith.config.settings import GROUPS, Setting, all_settings

_HEAD = """# Options

Every key of a configuration file. A key is spelled the same in the file, on the command line (`--seed 1` or `seed=1`)
and, in capitals, in the environment (`TUNESMITH_SEED=1`). How these are merged: [configuration.md](configuration.md).

Keys of LLaMA-Factory and transformers that are refused for now are [at the end](#known-and-not-supported-yet).

This page is generated: `tunesmith config reference > docs/options.md`.
"""

_KNOWN_HEAD = """## Known, and not supported yet

Keys of LLaMA-Factory and of `transformers.TrainingArguments` that mean nothing here yet. A file may hold them as long
as they ask for what happens anyway: switches off, values empty, or as shown in brackets. Everything else is refused
with the words of the first column.

| for | keys |
| --- | --- |
"""

_RENAMED_HEAD = """## Other spellings

Older names, and those of neighbouring programs. They are refused with the name that is used here.

| key | here |
| --- | --- |
"""


def render_reference() -> str:
    """Return the whole reference as Markdown, one section per group."""
    parts = [_HEAD]
    for group, cls in GROUPS.items():
        summary = inspect.cleandoc(cls.__doc__ or "")
        parts.append(f"## {group}\n\n{summary}\n")
        settings = [setting for setting in all_settings().values() if setting.group == group]
        parts += [render_setting(setting) for setting in sorted(settings, key=_place)]
    return "\n".join([*parts, render_known_keys(), render_other_spellings()])


def render_known_keys() -> str:
    """Return the table of keys that are refused for now, by what they are for."""
    by_feature: dict[str, list[str]] = {}
    for known in known_keys().values():
        idle = (None, "", False) if known.feature else (None,)
        values = ", ".join(str(value).lower() for value in known.accepted if value not in idle)
        shown = f"`{known.key}` ({values})" if values else f"`{known.key}`"
        by_feature.setdefault(known.feature or "settings with one value", []).append(shown)
    rows = [
        f"| {feature} | {', '.join(sorted(keys))} |" for feature, keys in sorted(by_feature.items(), key=_by_letters)
    ]
    return _KNOWN_HEAD + "\n".join(rows) + "\n"


def render_other_spellings() -> str:
    """Return the table of keys that have another name here."""
    rows = [f"| `{key}` | `{find_new_name(key)}` |" for key in sorted(renamed_keys())]
    return _RENAMED_HEAD + "\n".join(rows) + "\n"


def render_setting(setting: Setting) -> str:
    """Return the entry of one setting."""
    allowed = setting.render_allowed()
    facts = f"Allowed: {allowed}. Default: {render_default(setting)}."
    return f"### `{setting.key}`\n\n{facts}\n\n{all_descriptions()[setting.key]}\n"


def render_default(setting: Setting) -> str:
    """Return the default as one would write it."""
    default = setting.default
    if default is None or default in ((), {}):
        return "not set"
    if isinstance(default, tuple):
        return f"`{','.join(map(str, default))}`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def _by_letters(row: tuple[str, list[str]]) -> str:
    return row[0].lower()


def _place(setting: Setting) -> int:
    """Put the fields of a class in front of those it takes over from its parts."""
    own = list(inspect.get_annotations(GROUPS[setting.group]))
    return own.index(setting.key) if setting.key in own else len(own)
