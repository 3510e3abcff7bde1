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
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
            if not is_number or (key == "lora_rank_pattern" and value != int(value)):
                yield Finding((key,), f"`{key}` has {pattern}: {value}; allowed is {allowed}.", (pattern,))
            try:
                re.compile(pattern)
            except re.error as error:
                yield Finding(
                    (key,), f"`{key}` has the pattern '{pattern}', which is no regular expression: {error}.", (pattern,)
                )
