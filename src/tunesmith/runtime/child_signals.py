"""What happens to this process when a worker of one of our loaders dies: nothing at once."""

import multiprocessing
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data._utils import signal_handling


def start_workers(loader: DataLoader[Any]) -> tuple[Iterator[Any], list[BaseProcess]]:
    """Return the iterator of a loader, and the workers that were started for it, none if they go on from before.

    Their deaths show when a batch is asked for, never before.

    PyTorch keeps a list of workers for the whole process, and whoever starts the first one installs a handler that
    raises wherever the process happens to be when one of them dies: in a forward pass, in the middle of a checkpoint,
    or where we end a worker on purpose. Ours are taken off that list. Their loader then finds a death by itself while
    it waits, at the latest five seconds later.
    """
    before = set(multiprocessing.active_children())
    with _without_handler(), leave_numbers_to_us():
        workers: Any = iter(loader)
        if workers._worker_pids_set:  # not a second time for workers that are kept
            signal_handling._remove_worker_pids(id(workers))  # type: ignore[attr-defined]
            workers._worker_pids_set = False
    started = [child for child in multiprocessing.active_children() if child not in before]
    return workers, sorted(started, key=lambda child: child.pid or 0)


@contextmanager
def leave_numbers_to_us() -> Iterator[None]:
    """Keep PyTorch from advising against more workers than processors: those that wait for a network may be more."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        yield


@contextmanager
def _without_handler() -> Iterator[None]:
    """Keep the handler out of the moment in which new workers are on the list, and leave it as it was."""
    is_main = threading.current_thread() is threading.main_thread()  # others may not set handlers
    before = signal.getsignal(signal.SIGCHLD) if is_main and hasattr(signal, "SIGCHLD") else None
    if before is None:  # nor can one be put back that does not come from Python
        yield
        return
    signal_handling._set_SIGCHLD_handler()  # or it would be done below, by the first loader of the process
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


def kill_workers(workers: Sequence[BaseProcess]) -> None:
    """End workers at once, whatever they are stuck in."""
    for worker in workers:
        if worker.is_alive():
            worker.kill()
