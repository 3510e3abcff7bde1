"""Rules about settings that give single modules or parameters a value, by patterns of their names."""

import re
from collections.abc import Iterator

from tunesmith.config.rules.registry import Finding, Question, rule


@rule()
def patterns_have_numbers(question: Question) -> Iterator[Finding]:
    """Each pattern is a regular expression for names of modules, and has a rank or a strength."""
    adapter = question.config.adapter
    for key, patterns, allowed in (
        ("lora_rank_pattern", adapter.lora_rank_pattern, "a whole number, 1 or more"),
        ("lora_alpha_pattern", adapter.lora_alpha_pattern, "a number, more than 0"),
    ):
        for pattern, value in patterns.items():
            if not _is_positive(value, whole=key == "lora_rank_pattern"):
                yield Finding((key,), f"`{key}` has {pattern}: {value}; allowed is {allowed}.", (pattern,))
            yield from _find_broken_pattern(key, pattern)


@rule()
def rates_are_numbers(question: Question) -> Iterator[Finding]:
    """Each pattern is a regular expression for names of parameters, and has a learning rate."""
    key = "learning_rate_groups"
    for pattern, rate in (question.config.training.learning_rate_groups or {}).items():
        if isinstance(rate, bool) or not isinstance(rate, int | float) or rate < 0:
            yield Finding(
                (key,), f"`{key}` has {pattern}: {rate}; allowed is a learning rate of 0 or more.", (pattern,)
            )
        yield from _find_broken_pattern(key, pattern)


def _find_broken_pattern(key: str, pattern: str) -> Iterator[Finding]:
    try:
        re.compile(pattern)
    except re.error as error:
        message = f"`{key}` has the pattern '{pattern}', which is no regular expression: {error}."
        yield Finding((key,), message, (pattern,))


def _is_positive(value: object, *, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value > 0 and (not whole or value == int(value))
