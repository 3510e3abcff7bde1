"""The way of every setting: file, stage section, environment, command line, then the rules. All problems at once."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tunesmith.config.assemble import build_run_config
from tunesmith.config.command_line import parse_overrides
from tunesmith.config.entries import Entry
from tunesmith.config.environment import read_environment
from tunesmith.config.files import Document, read_document
from tunesmith.config.machine import Machine, find_machine
from tunesmith.config.objective import STAGES
from tunesmith.config.rules import Purpose, Question, find_problems, find_purpose
from tunesmith.config.run_config import Origin, RunConfig
from tunesmith.config.sections import choose_stage, split_sections
from tunesmith.config.settle import settle_entries
from tunesmith.errors import ConfigError, ConfigProblem

_PLACE_IN_FILE = re.compile(r"(.+):(\d+)( \(\w+\))?$")


def load_config(
    source: str | Path | Mapping[str, object] | None = None,
    overrides: Sequence[str] | Mapping[str, object] = (),
    *,
    stage: str | None = None,
    environ: Mapping[str, str] | None = None,
    purpose: Purpose = "auto",
    machine: Machine | None = None,
) -> RunConfig:
    """Read, merge and check the settings of one run.

    Later sources win: the file, its section for the stage, `TUNESMITH_<KEY>` variables, overrides.

    Args:
        source: A YAML or JSON file, a mapping of the same shape, or nothing.
        overrides: Words such as `["learning_rate=1e-4", "--plot_loss"]`, or a mapping of keys to values.
        stage: The stage, as `--stage` would set it.
        environ: Variables to read instead of the process's own.
        purpose: What the settings are for, which decides which rules apply: `train`, `generate`, `export`, or `read`
            for a look without asking about files and this machine. `auto` finds out from the settings.
        machine: The machine that the settings are for; this one when not given.

    Raises:
        ConfigError: Something cannot be used; every problem found is in it.
    """
    environ = os.environ if environ is None else environ
    document = _read_source(source)
    problems = list(document.problems)
    overriding, found = _read_overrides(overrides)
    problems += found
    if stage is not None:
        overriding.append(Entry("stage", stage, Origin("command line", "--stage")))
    variables, found = read_environment(environ)
    problems += found

    shared, sections, found = split_sections(document)
    problems += found
    chosen, found = choose_stage(document, shared, sections, [*variables, *overriding])
    problems += found
    layers = [*shared, *sections.get(chosen, ()), *variables, *overriding]
    settled = settle_entries(layers)
    problems += settled.problems
    for name, entries in sections.items():
        if name != chosen:
            problems += settle_entries(entries, only_names=name not in STAGES).problems

    config = build_run_config(settled, implied_stage=_implied(chosen, document))
    purpose = find_purpose(config) if purpose == "auto" else purpose
    question = Question(config, purpose, machine or find_machine(environ), settled.places)
    problems += find_problems(question, settled.broken)
    if problems:
        raise ConfigError(_in_order(problems))
    return config


def _read_source(source: str | Path | Mapping[str, object] | None) -> Document:
    if source is None or isinstance(source, Mapping):
        return Document("", dict(source or {}))
    return read_document(source)


def _read_overrides(
    overrides: Sequence[str] | Mapping[str, object],
) -> tuple[list[Entry], list[ConfigProblem]]:
    if isinstance(overrides, Mapping):
        return [Entry(key, value, Origin("override", f"override {key}")) for key, value in overrides.items()], []
    return parse_overrides(overrides)


def _implied(chosen: str, document: Document) -> tuple[str, Origin]:
    return chosen, Origin("implied", f"the only section of {document.name or 'the settings'}")


def _in_order(problems: Iterable[ConfigProblem]) -> list[ConfigProblem]:
    """Drop repetitions and put problems of a file in the order of its lines, before those of other places."""

    def key(problem: ConfigProblem) -> tuple[bool, str, int]:
        match = _PLACE_IN_FILE.match(problem.where)
        return (False, match[1], int(match[2])) if match else (True, "", 0)

    return sorted(dict.fromkeys(problems), key=key)
