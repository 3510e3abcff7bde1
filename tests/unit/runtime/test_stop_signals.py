import multiprocessing
import os
import signal
import time
from types import SimpleNamespace

import pytest

from tunesmith.runtime import stop_signals
from tunesmith.runtime.stop_signals import find_stop_signals, is_hangup_ignored, leave_stopping_to_parent


@pytest.fixture
def hangup():
    """Gives SIGHUP back to whom it belongs after a test."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_closed_terminal_asks_for_an_end(hangup):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert find_stop_signals() == (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    assert not is_hangup_ignored()


def test_a_program_under_nohup_outlives_its_terminal(hangup):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert find_stop_signals() == (signal.SIGINT, signal.SIGTERM)
    assert is_hangup_ignored()


def test_a_signal_of_the_parent_alone_ends_a_worker(monkeypatch):
    senders, codes = iter([7, 9]), []
    monkeypatch.setattr(signal, "sigwaitinfo", lambda numbers: SimpleNamespace(si_pid=next(senders)))
    monkeypatch.setattr(os, "_exit", codes.append)
    stop_signals._end_when_parent_says_so(9)
    assert codes == [0]
    assert next(senders, None) is None


def _work(pipe):
    leave_stopping_to_parent()
    pipe.send("ready")
    time.sleep(60)


@pytest.mark.processes
def test_a_worker_goes_on_until_its_parent_ends_it():
    ours, theirs = multiprocessing.Pipe()
    worker = multiprocessing.get_context("fork").Process(target=_work, args=(theirs,))
    worker.start()
    try:
        assert ours.recv() == "ready"
        stranger = multiprocessing.get_context("fork").Process(target=_send_all, args=(worker.pid,))
        stranger.start()
        stranger.join(timeout=10)
        worker.join(timeout=0.2)
        assert worker.exitcode is None
        worker.terminate()
        worker.join(timeout=10)
        assert worker.exitcode == 0
    finally:
        worker.kill()


def _send_all(process):
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        os.kill(process, number)
