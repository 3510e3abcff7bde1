"""Which of the processes of a run this one is, read from the environment that torchrun sets."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from tunesmith.errors import ConfigError

_WAIT_FOR_MAIN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Ranks:
    """The place of this process among all processes of a run."""

    rank: int = 0
    """Number of this process over all machines, from 0."""

    local_rank: int = 0
    """Number of this process on its machine, from 0; usually the number of its device."""

    world_size: int = 1
    """Number of processes over all machines."""

    local_world_size: int = 1
    """Number of processes on this machine."""

    @property
    def is_main(self) -> bool:
        """True in the one process of the run that writes results and talks to the user."""
        return self.rank == 0

    @property
    def is_local_main(self) -> bool:
        """True in one process per machine: the one that fills caches on local disks."""
        return self.local_rank == 0


def current_ranks(environ: Mapping[str, str] | None = None) -> Ranks:
    """Return the ranks of this process; a process that torchrun did not start is the only one.

    Args:
        environ: Environment to read instead of the one of this process.
    """
    source = os.environ if environ is None else environ
    world_size = read_whole_number(source, "WORLD_SIZE", 1)
    return Ranks(
        rank=read_whole_number(source, "RANK", 0),
        local_rank=read_whole_number(source, "LOCAL_RANK", 0),
        world_size=world_size,
        local_world_size=read_whole_number(source, "LOCAL_WORLD_SIZE", world_size),
    )


def is_started_by_torchrun(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether torchrun started this process and watches over it."""
    return "TORCHELASTIC_RUN_ID" in (os.environ if environ is None else environ)


def leave_error_to_main_process(ranks: Ranks, *, wait_seconds: float = _WAIT_FOR_MAIN_SECONDS) -> None:
    """Give the main process time to end by the same error, so that a mistake in the settings is shown once.

    It shows the error and ends, and torchrun then ends this process while it waits here. Where only this process has
    the error, the call returns, and the error is this process's to show. The main process is never waited for by
    exchanging messages: it may be in the middle of anything.
    """
    if not ranks.is_main:
        time.sleep(wait_seconds)


def read_whole_number(environ: Mapping[str, str], name: str, default: int) -> int:
    """Return the number that an environment variable holds, the default where it is unset or empty.

    Raises:
        ConfigError: It is no whole number from 0 on.
    """
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal():
        raise ConfigError(
            f"The environment variable {name} is {text!r}, but it must be a whole number from 0 on. Set it to one, or "
            "unset it: torchrun sets what it needs."
        )
    return int(text)
