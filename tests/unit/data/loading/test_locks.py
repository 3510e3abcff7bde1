import json
import os
import socket
import time

import psutil
import pytest

from tunesmith.data.loading.locks import LockTimes, LockWatch, WriterLock

TIMES = LockTimes(beat_seconds=0.02, gone_seconds=0.1, silent_seconds=0.4)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.lock"


def holder_text(**changes):
    holder = {"host": socket.gethostname(), "pid": os.getpid(), "started": psutil.Process().create_time()}
    return json.dumps({**holder, **changes})


def seconds_until_stale(watch, limit):
    begin = time.monotonic()
    while time.monotonic() - begin < limit:
        if watch.is_stale():
            return time.monotonic() - begin
        time.sleep(0.01)
    return None


def test_only_one_holds_a_lock_until_it_gives_it_back(path):
    first, second = WriterLock(path, TIMES), WriterLock(path, TIMES)
    assert first.acquire()
    assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()
    assert not path.exists()


def test_a_lock_whose_holder_shows_life_is_never_stale(path):
    with WriterLock(path, TIMES) as lock:
        assert lock.acquire()
        assert seconds_until_stale(LockWatch(path, TIMES), 1.0) is None


def test_a_lock_of_a_process_that_is_gone_is_stale_soon(path):
    path.write_text(holder_text(pid=2**22 + 12345))
    assert seconds_until_stale(LockWatch(path, TIMES), 0.35) >= 0.1


def test_a_process_number_that_was_used_again_does_not_keep_a_lock_alive(path):
    path.write_text(holder_text(started=1.0))
    assert seconds_until_stale(LockWatch(path, TIMES), 0.35) is not None


@pytest.mark.parametrize("text", [holder_text(host="elsewhere"), "", "{"], ids=["elsewhere", "empty", "torn"])
def test_a_silent_lock_of_another_machine_or_unknown_holder_is_stale_later(path, text):
    path.write_text(text)
    assert seconds_until_stale(LockWatch(path, TIMES), 2) >= 0.4


def test_the_holder_is_named(path):
    watch = LockWatch(path, TIMES)
    assert watch.holder() is None
    path.write_text(holder_text(host="node7", pid=41))
    assert watch.holder() == "process 41 on node7"
    path.write_text("")
    assert watch.holder() == "another process"


def test_a_stale_lock_is_taken_away_but_not_one_that_replaced_it(path):
    path.write_text(holder_text(pid=2**22 + 12345))
    watch = LockWatch(path, TIMES)
    assert seconds_until_stale(watch, 1) is not None
    path.write_text(holder_text())  # another waiting process took over in between
    watch.remove_stale()
    assert path.read_text() == holder_text()
    path.write_text(holder_text(pid=2**22 + 12345))
    watch.remove_stale()
    assert not path.exists()
    watch.remove_stale()  # gone already


def test_a_lock_that_was_replaced_is_not_removed_on_release(path):
    lock = WriterLock(path, TIMES)
    assert lock.acquire()
    path.write_text("another")
    lock.release()
    assert path.read_text() == "another"
