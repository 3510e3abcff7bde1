"""What settings say about each other, about files and about this machine: one small function per rule."""

from tunesmith.config.rules import (  # noqa: F401 - they register rules
    adapters,
    data,
    files,
    lean_optimizers,
    machine,
    mixing,
    model,
    optimizers,
    packages,
    patterns,
    preference,
    quantization,
    streaming,
    training,
    tuning,
    vocabulary,
)
from tunesmith.config.rules.registry import RULES, Finding, Purpose, Question, find_problems, find_purpose, rule

__all__ = ["RULES", "Finding", "Purpose", "Question", "find_problems", "find_purpose", "rule"]
