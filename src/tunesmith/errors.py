"""Every exception that a user can meet, with one exit code per class.

A message says where (setting, or file and row), what is there, what is allowed and why, and what to do.
Programming errors are not in this file: they stay ordinary Python exceptions with their traceback.
"""

from collections.abc import Sequence
from dataclasses import dataclass

EXIT_INTERRUPTED = 130
"""What a shell reports for a program that SIGINT ended."""


class TunesmithError(Exception):
    """Root of all errors that are shown to a user without a traceback."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing that is wrong in the configuration."""

    where: str
    """Place of the value: `run.yaml:3`, `--learning_rate`, `TUNESMITH_SEED` or the key alone."""

    message: str
    """What is there, what is allowed and what to do."""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class ConfigError(TunesmithError):
    """One or more settings cannot be used. All problems found are reported together."""

    exit_code = 2

    def __init__(self, problems: str | Sequence[ConfigProblem]) -> None:
        self.problems: tuple[ConfigProblem, ...] = (
            (ConfigProblem("", problems),) if isinstance(problems, str) else tuple(problems)
        )
        super().__init__("\n".join(str(problem) for problem in self.problems))


class DataError(TunesmithError):
    """Data is missing, malformed, of the wrong kind, or leaves nothing to train on."""

    exit_code = 3


class TemplateError(DataError):
    """A chat template cannot render these conversations, or cannot say which tokens are answers."""


class ModelError(TunesmithError):
    """A model, tokenizer or adapter cannot be loaded, is of the wrong kind, or cannot do what is asked."""

    exit_code = 4


class CheckpointError(TunesmithError):
    """A checkpoint is incomplete, damaged or does not fit the run."""

    exit_code = 5


class TrainingError(TunesmithError):
    """A run had to stop: the loss or a gradient is not a usable number, or a worker died."""

    exit_code = 6


class MissingDependencyError(TunesmithError):
    """An optional package is needed for what was asked; the message says how to install it."""

    exit_code = 7
