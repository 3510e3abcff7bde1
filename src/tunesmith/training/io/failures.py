"""What to say when a batch could not be made: which worker, which row, how it ended, and what helps."""

import signal
from dataclasses import dataclass

from tunesmith.data.loading.attempts import Failure
from tunesmith.errors import TrainingError
from tunesmith.training.io.settings import DescribeRow
from tunesmith.training.io.worker_group import WorkerGroup

_TOO_MANY_FILES = ("Too many open files", "ancdata")
"""Words of the errors that running out of file descriptors ends in; the second is how a socket puts it."""


_FORGIVEN_AFTER = 200
"""Batches without trouble after which earlier trouble is no longer held against a loader."""


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

    is_final: bool = False
    """Whether trying again is of no use."""

    def render(self, decision: str) -> str:
        """Return everything, with what is done about it."""
        stack = f"\n{self.stack.rstrip()}" if self.stack else ""
        return f"{self.what}. {decision} {self.advice}".rstrip() + stack


@dataclass(slots=True)
class Restarts:
    """Counts how often a loader had to be built again, and knows when that is enough."""

    most: int
    """`dataloader_restarts`."""

    failures: int = 0
    _batches_since: int = 0

    def render(self) -> str:
        """Return which attempt this is, in words."""
        return f"attempt {self.failures} of {self.most}"

    def note_batch(self) -> None:
        """Take note of a batch that came."""
        self._batches_since += 1
        if self._batches_since > _FORGIVEN_AFTER:
            self.failures = 0

    def note_trouble(self, trouble: Trouble) -> None:
        """Take note that a batch did not come.

        Raises:
            FeedError: The loader was built again as often as the policy allows, or that is of no use.
        """
        self.failures, self._batches_since = self.failures + 1, 0
        if trouble.is_final:
            raise FeedError(trouble.render("The run stops here."))
        if self.failures > self.most:
            times = "once" if not self.most else f"{self.most + 1} times"
            raise FeedError(
                trouble.render(f"It was tried {times} (dataloader_restarts is {self.most}), and the run stops here.")
            )


def describe_failure(failure: Failure, where: str, describe_row: DescribeRow) -> Trouble:
    """Describe an exception in the code that makes a batch."""
    if failure.is_final:  # the message is for the user, and says where
        return Trouble(what=failure.message.removesuffix("."), advice="", is_final=True)
    at = "" if failure.row is None else f" at {describe_index(failure.row, describe_row)}"
    message = f": {failure.message}" if failure.message else ""
    return Trouble(
        what=f"Making {where} failed{at} with {failure.kind}{message}",
        advice="Look at this row, and at the code that reads it." if at else "Look at the code that makes batches.",
        stack=failure.stack,
        lacks_files=_lacks_files(failure.message),
    )


def describe_death(group: WorkerGroup, error: BaseException, where: str, describe_row: DescribeRow) -> Trouble:
    """Describe why a worker delivered nothing."""
    if _lacks_files(str(error)):
        return Trouble(
            what=f"There are not enough file descriptors to receive {where} ({error})",
            advice="Raise the limit of open files (ulimit -n).",
            lacks_files=True,
        )
    found = group.find_dead()
    if found is None:
        return Trouble(what=f"The workers did not deliver {where} ({error})", advice="")
    number, worker = found
    row = group.find_row(number)
    at = "" if row is None else f" while it was making {describe_index(row, describe_row)}"
    how, advice = _explain_exit(worker.exitcode or 0)
    return Trouble(what=f"Worker {number + 1} of {len(group)} (process {worker.pid}) {how}{at}", advice=advice)


def describe_silence(group: WorkerGroup, where: str, seconds: float, describe_row: DescribeRow) -> Trouble:
    """Describe that nothing came in time; the workers were killed for it."""
    rows = [group.find_row(number) for number in range(len(group))]
    known = [describe_index(row, describe_row) for row in rows if row is not None]
    at = f", which were at {'; '.join(known)}," if known else ""
    return Trouble(
        what=f"{where} did not come within {seconds:g} s (data_timeout_seconds); the workers{at} were ended",
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
