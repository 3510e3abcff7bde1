"""The options reference, generated from the same table and texts that check a configuration."""

import inspect

from tunesmith.config.descriptions import all_descriptions
from tunesmith.config.settings import GROUPS, Setting, all_settings

_HEAD = """# Options

Every key of a configuration file. A key is spelled the same in the file, on the command line (`--seed 1` or `seed=1`)
and, in capitals, in the environment (`TUNESMITH_SEED=1`). How these are merged: [configuration.md](configuration.md).

This page is generated: `tunesmith config reference > docs/options.md`.
"""


def render_reference() -> str:
    """Return the whole reference as Markdown, one section per group."""
    parts = [_HEAD]
    for group, cls in GROUPS.items():
        summary = inspect.cleandoc(cls.__doc__ or "")
        parts.append(f"## {group}\n\n{summary}\n")
        settings = [setting for setting in all_settings().values() if setting.group == group]
        parts += [render_setting(setting) for setting in sorted(settings, key=_place)]
    return "\n".join(parts)


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


def _place(setting: Setting) -> int:
    """Put the fields of a class in front of those it takes over from its parts."""
    own = list(inspect.get_annotations(GROUPS[setting.group]))
    return own.index(setting.key) if setting.key in own else len(own)
