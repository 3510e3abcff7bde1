"""What to say when a batch could not be made: which worker, which row, how it ended, and what helps."""

import signal
from dataclasses import dataclass

from tunesmith.errors import TrainingError
from tunesmith.training.io.making import Failure
from tunesmith.training.io.pipe import WorkerPipe
from tunesmith.training.io.settings import DescribeRow

_TOO_MANY_FILES = ("Too many open files", "ancdata")
"""Words of the errors that running out of file descriptors ends in; the second is how a socket puts it."""


class FeedError(TrainingError):
    """Batches cannot be made any more; the run saves what it has and stops."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a batch did not come."""

    what: str
    """As the beginning of a sentence, without a full stop."""

    advice: str
    stack: str = ""
    lacks_files: bool = False
    """Whether the process ran out of file descriptors."""

    def render(self, decision: str) -> str:
        """Return everything, with what is done about it."""
        stack = f"\n{self.stack.rstrip()}" if self.stack else ""
        return f"{self.what}. {decision} {self.advice}{stack}"


def describe_failure(failure: Failure, where: str, describe_row: DescribeRow) -> Trouble:
    """Describe an exception in the code that makes a batch."""
    at = "" if failure.row is None else f" at {describe_index(failure.row, describe_row)}"
    message = f": {failure.message}" if failure.message else ""
    return Trouble(
        what=f"Making {where} failed{at} with {failure.kind}{message}",
        advice="Look at this row, and at the code that reads it." if at else "Look at the code that makes batches.",
        stack=failure.stack,
        lacks_files=_lacks_files(failure.message),
    )


def describe_death(pipe: WorkerPipe, error: BaseException, where: str, describe_row: DescribeRow) -> Trouble:
    """Describe why a worker delivered nothing."""
    if _lacks_files(str(error)):
        return Trouble(
            what=f"There are not enough file descriptors to receive {where} ({error})",
            advice="Raise the limit of open files (ulimit -n).",
            lacks_files=True,
        )
    found = pipe.find_dead()
    if found is None:
        return Trouble(what=f"The workers did not deliver {where} ({error})", advice="")
    number, worker = found
    row = pipe.find_row(number)
    at = "" if row is None else f" while it was making {describe_index(row, describe_row)}"
    how, advice = _explain_exit(worker.exitcode or 0)
    return Trouble(
        what=f"Worker {number + 1} of {pipe.settings.num_workers} (process {worker.pid}) {how}{at}", advice=advice
    )


def describe_silence(pipe: WorkerPipe, where: str, seconds: float, describe_row: DescribeRow) -> Trouble:
    """Describe that nothing came in time; the workers were killed for it."""
    rows = [pipe.find_row(number) for number in range(pipe.settings.num_workers)]
    known = [describe_index(row, describe_row) for row in rows if row is not None]
    at = f", which were at {'; '.join(known)}" if known else ""
    return Trouble(
        what=f"{where} did not come within {seconds:g} s (data_timeout_seconds); the workers{at}, were ended",
        advice="Look at the stacks above; raise data_timeout_seconds if making a batch may take that long.",
    )


def describe_index(index: int, describe_row: DescribeRow) -> str:
    """Return where a row comes from; a filler is a copy of a real row."""
    return describe_row(index if index >= 0 else -1 - index)


def _explain_exit(code: int) -> tuple[str, str]:
    """Return how a process ended, in words, and what helps."""
    if code >= 0:
        return f"ended with exit code {code}", "Code that makes rows must not end its process."
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    advice = {
        "SIGKILL": "The system ends processes this way when memory runs out: fewer workers take less.",
        "SIGBUS": "The shared memory (/dev/shm) may be full: give the container more of it (--shm-size).",
        "SIGSEGV": "A library crashed in it.",
    }
    return f"was ended by {name}", advice.get(name, "Somebody or something sent it that signal.")


def _lacks_files(message: str) -> bool:
    return any(words in message for words in _TOO_MANY_FILES)
