"""The signals that ask this process to end, and what its workers do about them."""

import os
import signal
import sys
import threading

_HANGUP = None if sys.platform == "win32" else signal.SIGHUP
"""The terminal, or the connection behind it, is gone. Windows has no such signal."""


def find_stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that ask for an end: Ctrl-C, a scheduler's SIGTERM, and SIGHUP of a terminal that is closed.

    SIGHUP is left out where it is ignored: `nohup` ignores it for the program that it starts, to keep it running.
    """
    asked = (signal.SIGINT, signal.SIGTERM)
    return asked if _HANGUP is None or is_hangup_ignored() else (*asked, _HANGUP)


def is_hangup_ignored() -> bool:
    """Return whether this process was started to outlive its terminal."""
    return _HANGUP is not None and signal.getsignal(_HANGUP) == signal.SIG_IGN


def leave_stopping_to_parent() -> None:
    """Have this worker go on until its parent ends it.

    A terminal and many schedulers send their signal to every process of a group. The training process then finishes
    the step under way, and needs its workers for it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if _HANGUP is not None:
        signal.signal(_HANGUP, signal.SIG_IGN)
    if sys.platform == "linux":  # elsewhere nothing tells who sent a signal
        # Taken by a thread, since a handler is not told the sender. Threads that start later block it as this one does.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_when_parent_says_so, args=(os.getppid(),), daemon=True).start()


def _end_when_parent_says_so(parent: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
        pass
    os._exit(0)
