"""Words of a command line to a file and overrides: `FILE key=value --key value --key=value --flag --list a b`."""

import re
from collections.abc import Iterator, Sequence

from tunesmith.config.coercion import PlainText, render_value
from tunesmith.config.entries import Entry
from tunesmith.config.files import FILE_ENDINGS
from tunesmith.config.llamafactory import known_keys
from tunesmith.config.run_config import Origin
from tunesmith.config.settings import all_settings
from tunesmith.errors import ConfigProblem

_ASSIGNMENT = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--([A-Za-z_][\w.-]*)(?:=(.*))?", re.DOTALL)


def parse_command_line(argv: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """Split the words after the command's name into the file, if the first word is one, and the overrides.

    Args:
        argv: Words as the shell gave them, without the program and command names.

    Returns:
        The file as written, or `None`, and the remaining words for `load_config`.
    """
    if argv and not argv[0].startswith("-") and not _ASSIGNMENT.fullmatch(argv[0]):
        return argv[0], tuple(argv[1:])
    return None, tuple(argv)


def parse_overrides(words: Sequence[str]) -> tuple[list[Entry], list[ConfigProblem]]:
    """Turn override words into entries, in order; a key that is given two values is a problem."""
    entries: list[Entry] = []
    problems: list[ConfigProblem] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag, assignment = _FLAG.fullmatch(word), _ASSIGNMENT.fullmatch(word)
        if flag and flag[2] is not None:
            key = flag[1].replace("-", "_")
            entries.append(_entry(key, PlainText(flag[2]), f"--{key}"))
        elif flag:
            _take_flag(flag[1].replace("-", "_"), rest, entries, problems)
        elif assignment:
            entries.append(_entry(assignment[1], PlainText(assignment[2]), f"{assignment[1]}=..."))
        else:
            problems.append(_stray(word))
    return entries, problems + list(_find_repeated(entries))


def _find_repeated(entries: Sequence[Entry]) -> Iterator[ConfigProblem]:
    """Yield a problem for every key with two values: one of them would be lost without a word."""
    first: dict[str, Entry] = {}
    for entry in entries:
        earlier = first.setdefault(entry.key, entry)
        if earlier.value == entry.value:
            continue
        setting = all_settings().get(entry.key)
        values = f"{render_value(earlier.value)} and {render_value(entry.value)}"
        shown = "with different values" if setting is not None and setting.secret else f"as {values}"
        yield ConfigProblem(
            entry.origin.where, f"`{entry.key}` is given twice on the command line, {shown}; keep one of them."
        )


def _take_flag(key: str, rest: list[str], entries: list[Entry], problems: list[ConfigProblem]) -> None:
    """Read the values of `--key`: every word up to the next flag or `key=value`.

    The first word may look like one, as in `--default_system a=b`, and so may all parts of a mapping.
    """
    setting = all_settings().get(key)
    takes_pairs = setting is not None and setting.takes_mapping
    values: list[str] = []
    while rest and not _FLAG.fullmatch(rest[0]) and not _sets_known_key(rest[0]):
        if values and not takes_pairs and _ASSIGNMENT.fullmatch(rest[0]):
            break
        values.append(rest.pop(0))
    where = f"--{key}"
    if values:
        value = PlainText(values[0]) if len(values) == 1 else [PlainText(value) for value in values]
        entries.append(_entry(key, value, where))
        return
    negated = all_settings().get(key.removeprefix("no_")) if key.startswith("no_") else None
    if negated is not None and setting is None and negated.is_switch:
        entries.append(_entry(negated.key, PlainText("false"), where))
    elif setting is not None and not setting.is_switch:
        allowed = setting.render_allowed()
        problems.append(ConfigProblem(where, f"`{key}` needs a value after it; allowed is {allowed}."))
    else:
        entries.append(_entry(key, PlainText("true"), where))


def _sets_known_key(word: str) -> bool:
    match = _ASSIGNMENT.fullmatch(word)
    return match is not None and (match[1].split(".")[0] in all_settings() or match[1] in known_keys())


def _entry(key: str, value: object, where: str) -> Entry:
    return Entry(key, value, Origin("command line", where))


def _stray(word: str) -> ConfigProblem:
    if word.lower().endswith(FILE_ENDINGS):
        return ConfigProblem(word, "the configuration file comes first, before any setting, and there can be only one.")
    return ConfigProblem(word, "this word is neither `key=value` nor `--key value`.")
