"""Stage sections of a file: `pt_args:`, `sft_args:` ... hold what differs between stages."""

from collections.abc import Mapping, Sequence

from tunesmith.config.entries import Entry
from tunesmith.config.files import Document
from tunesmith.config.llamafactory import ALL_STAGES
from tunesmith.config.run_config import Origin
from tunesmith.errors import ConfigProblem

_SUFFIX = "_args"
SECTION_NAMES = tuple(f"{stage}{_SUFFIX}" for stage in ALL_STAGES)


def split_sections(document: Document) -> tuple[list[Entry], dict[str, list[Entry]], list[ConfigProblem]]:
    """Return the shared entries of a file, the entries of each stage's section, and what is wrong with the sections."""
    shared: list[Entry] = []
    sections: dict[str, list[Entry]] = {}
    problems: list[ConfigProblem] = []
    for key, value in document.values.items():
        if key not in SECTION_NAMES:
            shared.append(_entry(document, (key,), value))
            continue
        stage = key.removesuffix(_SUFFIX)
        if isinstance(value, Mapping):
            sections[stage] = [_entry(document, (key, name), inner) for name, inner in value.items()]
            problems += _find_stage_problems(document, key, stage, value)
        elif value is None or value == "":
            sections[stage] = []
        else:
            problems.append(
                ConfigProblem(document.where(key), f"`{key}` is '{value}'; it holds `key: value` lines, set in by two.")
            )
    return shared, sections, problems


def choose_stage(
    document: Document,
    shared: Sequence[Entry],
    sections: Mapping[str, Sequence[Entry]],
    later: Sequence[Entry],
) -> tuple[str, list[ConfigProblem]]:
    """Return the stage whose section is used; an empty word when the file has none and nobody names one."""
    named = [entry.value for entry in (*shared, *later) if entry.key == "stage" and entry.value]
    if named:
        return str(named[-1]).lower(), []
    if len(sections) == 1:
        return next(iter(sections)), []
    if sections:
        names = ", ".join(f"{stage}{_SUFFIX}" for stage in sections)
        hint = f"the file has sections for several stages ({names}); say which with `stage:` or `--stage`."
        return "", [ConfigProblem(document.name, hint)]
    return "", []


def _find_stage_problems(
    document: Document, section: str, stage: str, values: Mapping[str, object]
) -> list[ConfigProblem]:
    inner = values.get("stage", stage)
    if str(inner).lower() == stage:
        return []
    message = f"`stage` is {inner} inside `{section}`; leave it out there, the section's name says it."
    return [ConfigProblem(document.where(section, "stage"), message)]


def _entry(document: Document, path: tuple[str, ...], value: object) -> Entry:
    where = document.where(*path)
    shown = where if len(path) == 1 or not document.name else f"{where} ({path[0]})"
    places = {
        inner[len(path) :]: document.where(*inner)
        for inner in document.lines
        if len(inner) > len(path) and inner[: len(path)] == path
    }
    return Entry(
        path[-1],
        value,
        Origin("file" if len(path) == 1 else "section", shown if document.name else ".".join(path)),
        places,
    )
