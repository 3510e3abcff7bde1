"""A folder belongs to one run at a time, and to none when that run is dead."""

import os
import subprocess
import sys

import pytest

from tunesmith.errors import ConfigError
from tunesmith.runtime import folder_lock
from tunesmith.runtime.folder_lock import LOCK_FILE, hold_folder

_HOLD = """
import os, sys, time
from tunesmith.runtime.folder_lock import hold_folder
with hold_folder(sys.argv[1], "output_dir"):
    if not os.fork():
        print(os.getpid(), flush=True)  # from the worker: it has let go of the lock by now
        time.sleep(60)
        os._exit(0)
    time.sleep(60)
"""


def test_the_second_run_is_refused_and_told_who_holds_the_folder(tmp_path):
    with hold_folder(tmp_path, "output_dir"):
        expected = rf"output_dir: {tmp_path} is in use.*process {os.getpid()} on .*wait"
        with pytest.raises(ConfigError, match=expected), hold_folder(tmp_path, "output_dir"):
            pass
        with hold_folder(tmp_path / "another", "output_dir"):
            pass
        assert (tmp_path / LOCK_FILE).exists()
    with hold_folder(tmp_path, "output_dir"):
        pass


def test_nothing_stays_behind(tmp_path):
    with pytest.raises(ZeroDivisionError), hold_folder(tmp_path / "new", "output_dir"):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []
    with hold_folder(tmp_path / "new", "output_dir"):
        (tmp_path / "new" / "result").touch()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["result"]


def test_a_file_that_was_removed_meanwhile_is_no_lock(tmp_path, monkeypatch):
    """Its last holder removed it after this process opened it, so that a third one could lock a new file."""
    taken = folder_lock._locks.flock
    removals = iter([True])

    def flock(descriptor, kind):
        taken(descriptor, kind)
        if next(removals, False):
            (tmp_path / LOCK_FILE).unlink()

    monkeypatch.setattr(folder_lock._locks, "flock", flock)
    with hold_folder(tmp_path, "output_dir"), pytest.raises(ConfigError), hold_folder(tmp_path, "output_dir"):
        pass


def test_a_file_system_without_locks_is_no_obstacle(tmp_path, monkeypatch):
    def flock(descriptor, kind):
        raise OSError("no locks available")

    monkeypatch.setattr(folder_lock._locks, "flock", flock)
    with hold_folder(tmp_path, "output_dir"), hold_folder(tmp_path, "output_dir"):
        pass


@pytest.mark.processes
def test_a_killed_run_holds_nothing_even_if_its_workers_live_on(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    worker = int(holder.stdout.readline())
    try:
        with pytest.raises(ConfigError, match=f"process {holder.pid} on"), hold_folder(tmp_path, "output_dir"):
            pass
        holder.kill()
        holder.wait()
        os.kill(worker, 0)
        with hold_folder(tmp_path, "output_dir"):
            pass
    finally:
        holder.kill()
        os.kill(worker, 9)
        holder.stdout.close()
