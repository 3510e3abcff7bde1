"""`tunesmith config`: check, show, explain and start configuration files."""

import json
from collections.abc import Callable, Mapping, Sequence

from tunesmith.cli import output
from tunesmith.cli.actions import run_action
from tunesmith.cli.flags import check_no_words
from tunesmith.config.command_line import parse_command_line
from tunesmith.config.load import load_config
from tunesmith.config.settings import GROUPS, all_settings
from tunesmith.errors import ConfigError

HELP = """
usage: tunesmith config check FILE [key=value ...]   every problem of a file, without training; exit code 2 if any
       tunesmith config show FILE [key=value ...]    every value and where it came from
       tunesmith config show FILE --changed          only those that differ from the defaults
       tunesmith config new STAGE                    a commented file to start from (STAGE: pt, sft, rm, dpo or kto)
       tunesmith config schema                       JSON schema, for completion and checks in editors
       tunesmith config reference                    the options reference (docs/options.md)

Nothing here loads a model or any large library.

  tunesmith config new sft > run.yaml
  tunesmith config check run.yaml learning_rate=1e-4
"""


def run(arguments: Sequence[str]) -> int:
    """Run one of the actions and return the exit code."""
    return run_action(arguments, _ACTIONS, HELP)


def _check(words: list[str]) -> int:
    source, overrides = parse_command_line(words)
    config = load_config(source, overrides)
    for note in config.notes():
        output.show_text(f"note: {note}")
    output.show_text(f"{source or 'the settings'}: no problems; {len(config.origins)} settings, the rest at defaults")
    return 0


def _show(words: list[str]) -> int:
    changed_only = "--changed" in words
    source, overrides = parse_command_line([word for word in words if word != "--changed"])
    config = load_config(source, overrides, purpose="read")
    shown = {
        key: ("(hidden)" if setting.secret and config.value(key) else _write(config.value(key)), config.origin(key))
        for key, setting in all_settings().items()
        if not changed_only or key in config.origins
    }
    key_width = max((len(key) for key in shown), default=0)
    value_width = max((len(value) for value, _ in shown.values() if len(value) <= 40), default=0)
    for group in GROUPS:
        keys = [key for key in shown if all_settings()[key].group == group]
        if not keys:
            continue
        output.show_text(f"### {group}")
        for key in keys:
            value, origin = shown[key]
            output.show_text(f"{key:<{key_width}}  {value:<{value_width}}  {origin}".rstrip())
    return 0


def _write(value: object) -> str:
    if value is None or value == ():
        return "-"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, Mapping | bool):
        return json.dumps(value, ensure_ascii=False)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _new(words: list[str]) -> int:
    from tunesmith.config.starter import render_starter

    if len(words) != 1:
        raise ConfigError("`config new` takes one stage, such as `tunesmith config new sft`.")
    output.show_text(render_starter(words[0]), end="")
    return 0


def _schema(words: list[str]) -> int:
    from tunesmith.config.schema import build_schema

    check_no_words("config schema", words)
    output.show_json(build_schema(), indent=2)
    return 0


def _reference(words: list[str]) -> int:
    from tunesmith.config.reference import render_reference

    check_no_words("config reference", words)
    output.show_text(render_reference(), end="")
    return 0


_ACTIONS: Mapping[str, Callable[[list[str]], int]] = {
    "check": _check,
    "show": _show,
    "new": _new,
    "schema": _schema,
    "reference": _reference,
}
