"""What happens to this process when one of its workers dies: nothing at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_child_signals() -> Iterator[None]:
    """Keep PyTorch from raising wherever this process happens to be when a worker dies; for starting its workers.

    Its handler would raise in the middle of a forward pass or of a checkpoint. Without it a death shows when the next
    batch is asked for, at the latest five seconds later.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGCHLD"):
        yield
        return
    before = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)
