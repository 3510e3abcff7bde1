"""The list of rules and how they are asked."""

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Literal

from tunesmith.config.machine import Machine
from tunesmith.config.run_config import RunConfig
from tunesmith.errors import ConfigProblem

Places = Mapping[str, Mapping[tuple[str, ...], str]]
Purpose = Literal["auto", "train", "generate", "export", "read"]


@dataclass(frozen=True, slots=True)
class Question:
    """What a rule may look at."""

    config: RunConfig
    purpose: Purpose
    machine: Machine
    places: Places = field(default_factory=dict)
    """Where the inner parts of nested values stand, by key and path."""

    def is_set(self, key: str) -> bool:
        """Return whether somebody wrote this key."""
        return self.config.origin(key).is_set

    def cite(self, key: str) -> str:
        """Return `key: value`, for messages."""
        return self.config.cite(key)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule objects to."""

    keys: tuple[str, ...]
    """The settings in question; the problem is shown where the first one that is written stands."""

    message: str

    path: tuple[str, ...] = ()
    """Place inside a nested value of the first key; empty for the value as a whole."""


Rule = Callable[[Question], Iterator[Finding]]

RULES: list[tuple[Rule, Set[str]]] = []
"""Every rule with the purposes it applies to."""


def rule(*purposes: Purpose) -> Callable[[Rule], Rule]:
    """Register a rule for some purposes, or for all when none is named."""
    applies = frozenset(purposes or ("train", "generate", "export", "read"))

    def register(function: Rule) -> Rule:
        RULES.append((function, applies))
        return function

    return register


def find_problems(question: Question, broken: Set[str]) -> Iterator[ConfigProblem]:
    """Ask every rule that applies.

    Args:
        question: Settings, with defaults in place of values that could not be understood.
        broken: Keys with such values; findings about them are left out.
    """
    for function, purposes in RULES:
        if question.purpose not in purposes:
            continue
        for finding in function(question):
            if broken.isdisjoint(finding.keys):
                yield _render(question, finding)


def find_purpose(config: RunConfig) -> Purpose:
    """Return what settings are for, judging by which are there."""
    if config.runs:
        return "train"
    if config.export.export_dir:
        return "export"
    return "train" if config.training.output_dir or config.data.eval_dataset else "generate"


def _render(question: Question, finding: Finding) -> ConfigProblem:
    written = [key for key in finding.keys if question.is_set(key)]
    if not written:
        return ConfigProblem(finding.keys[0], finding.message)
    if finding.path:
        inner = question.places.get(finding.keys[0], {})
        return ConfigProblem(inner.get(finding.path, question.config.origin(finding.keys[0]).where), finding.message)
    first, *others = (question.config.origin(key).where for key in written)
    elsewhere = ", ".join(dict.fromkeys(place for place in others if place != first))
    return ConfigProblem(first, f"{finding.message} (see {elsewhere})" if elsewhere else finding.message)
