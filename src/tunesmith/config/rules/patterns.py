"""Rules about ranks and strengths of single modules."""

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
            try:
                re.compile(pattern)
            except re.error as error:
                yield Finding(
                    (key,), f"`{key}` has the pattern '{pattern}', which is no regular expression: {error}.", (pattern,)
                )


def _is_positive(value: object, *, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value > 0 and (not whole or value == int(value))
