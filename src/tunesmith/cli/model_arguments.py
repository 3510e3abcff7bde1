"""Command lines of commands that take a model: `MODEL [OUT] [--adapter A] [key=value ...]`, or a configuration file.

They are rewritten to the words that `train` takes, so that every key works here too and means the same.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tunesmith.errors import ConfigError, ModelError

_ASSIGNMENT = re.compile(r"[A-Za-z_][\w.]*=")
_CONFIG_SUFFIXES = (".yaml", ".yml", ".json")


def expand_model_arguments(
    arguments: Sequence[str], *, positional: Sequence[str], flags: Mapping[str, str]
) -> list[str]:
    """Rewrite short forms to settings.

        chat outputs/run --system "Be brief."   ->   --model_name_or_path BASE --adapter_name_or_path outputs/run
                                                     --default_system "Be brief."

    Args:
        arguments: Words after the command.
        positional: Settings that the words without a flag stand for, in order, starting with the model. A
            configuration file as first word takes the place of the model.
        flags: Short flags and the settings they stand for; each takes one value and may be repeated.
    """
    short: dict[str, list[str]] = {}
    places: list[str] = []
    rest: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, has_value, value = word.partition("=")
        if name in flags:
            short.setdefault(flags[name], []).append(value if has_value else _next_value(name, words))
        elif word.startswith("--"):
            rest.append(word)
            while "=" not in word and words and not words[0].startswith("--"):
                rest.append(words.pop(0))  # a flag's values; more than one for a list
        elif _ASSIGNMENT.match(word):
            rest.append(word)
        else:
            places.append(word)
    return _assemble(places, positional, short, rest)


def _assemble(places: list[str], positional: Sequence[str], short: dict[str, list[str]], rest: list[str]) -> list[str]:
    head: list[str] = []
    if places and places[0].endswith(_CONFIG_SUFFIXES):
        head = [places.pop(0)]
        positional = positional[1:]
    if len(places) > len(positional):
        raise ConfigError(
            f"Too many words: {' '.join(places[len(positional) :])}. Expected {' '.join(positional) or 'settings'} "
            "at most; values of settings are given as key=value or --key value."
        )
    settings = dict(zip(positional, places, strict=False))
    model = settings.get("model_name_or_path")
    if model is not None and (base := find_adapter_base(Path(model))) is not None:
        settings["model_name_or_path"] = base
        short.setdefault("adapter_name_or_path", []).insert(0, model)
    for key, value in settings.items():
        head += [f"--{key}", value]
    for key, values in short.items():
        head += [f"--{key}", *values]
    return head + rest


def find_adapter_base(folder: Path) -> str | None:
    """Return the model that an adapter folder belongs to, or `None` for anything that is not an adapter folder."""
    settings = folder / "adapter_config.json"
    if not settings.is_file() or (folder / "config.json").is_file():
        return None
    try:
        content = json.loads(settings.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{settings} cannot be read as JSON: {error}. Name another adapter, or write it anew."
        ) from error
    base = content.get("base_model_name_or_path") if isinstance(content, Mapping) else None
    if not base:
        raise ConfigError(
            f"{folder} holds an adapter whose adapter_config.json does not name its base model. "
            "Name both: MODEL --adapter ADAPTER."
        )
    if Path(base).is_absolute() and not Path(base).exists():
        raise ConfigError(
            f"{folder} holds an adapter of the model {base}, which is not there any more. "
            f"Name where it is now: MODEL --adapter {folder}."
        )
    return str(base)


def _next_value(flag: str, words: list[str]) -> str:
    if not words:
        raise ConfigError(f"{flag} stands at the end of the command line without its value.")
    return words.pop(0)
