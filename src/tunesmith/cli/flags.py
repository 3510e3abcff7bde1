"""Flags of single commands that are no settings of a run, taken out before the settings are read."""

from collections.abc import Iterable, Sequence

from tunesmith.errors import ConfigError


def take_switches(words: Iterable[str], names: Sequence[str]) -> tuple[set[str], list[str]]:
    """Return which of the bare flags are there, and the other words."""
    found: set[str] = set()
    rest: list[str] = []
    for word in words:
        if word in names:
            found.add(word)
        else:
            rest.append(word)
    return found, rest


def take_value(words: Sequence[str], name: str) -> tuple[str | None, list[str]]:
    """Return the value of `--name value` or `--name=value`, and the other words.

    Raises:
        ConfigError: The flag is there twice, or without a value.
    """
    value: str | None = None
    rest: list[str] = []
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        flag, is_joined, joined = word.partition("=")
        if flag != name:
            rest.append(word)
            continue
        if value is not None:
            raise ConfigError(f"{name} is there twice; give it once.")
        if not is_joined and (not remaining or remaining[0].startswith("--")):
            raise ConfigError(f"{name} has no value; give it as `{name} VALUE`.")
        value = joined if is_joined else remaining.pop(0)
    return value, rest


def take_count(words: Sequence[str], name: str) -> tuple[int | None, list[str]]:
    """Return the value of a flag that takes a whole number from 1 on, and the other words.

    Raises:
        ConfigError: It is something else.
    """
    value, rest = take_value(words, name)
    if value is None:
        return None, rest
    if not value.isdecimal() or int(value) < 1:
        raise ConfigError(f"{name} is {value!r}; allowed is a whole number from 1 on.")
    return int(value), rest


def check_no_words(command: str, words: Sequence[str]) -> None:
    """Refuse words behind a command that takes none.

    Raises:
        ConfigError: There are some.
    """
    if words:
        raise ConfigError(f"`{command}` takes nothing after it; there is '{' '.join(words)}'.")
