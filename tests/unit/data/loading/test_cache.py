import logging
import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from tunesmith.data.loading.cache import RowCache, find_default_cache_dir, resolve_cache_dir
from tunesmith.data.loading.encoded import Place, build_chunk
from tunesmith.data.loading.locks import LockTimes
from tunesmith.errors import DataError
from tunesmith.runtime.ranks import Ranks

TIMES = LockTimes(beat_seconds=0.05, gone_seconds=0.3, silent_seconds=5)


def chunk(*rows):
    ids = [np.asarray(row, dtype=np.int32) for row in rows]
    spans = [np.asarray([0, len(row)], dtype=np.int32) for row in rows]
    return build_chunk(ids, spans, [Place(number, 0, number) for number in range(len(rows))])


class Writer:
    """Writes two rows and counts how often it was asked to."""

    def __init__(self):
        self.calls = 0

    def __call__(self, writer):
        self.calls += 1
        writer.write(chunk([5, 6], [7, 8, 9]))
        return {"calls": self.calls}


def cache_of(folder, **changes):
    return RowCache(folder, lock_times=TIMES, poll_seconds=0.02, **changes)


def test_rows_are_written_once_and_then_read(tmp_path):
    write = Writer()
    for _ in range(2):
        rows = cache_of(tmp_path).obtain("key", write)
        assert rows.lengths.tolist() == [2, 3]
    assert write.calls == 1
    assert [path.name for path in tmp_path.iterdir()] == ["key.arrow"]


def test_another_key_is_another_file(tmp_path):
    write = Writer()
    cache_of(tmp_path).obtain("one", write)
    cache_of(tmp_path).obtain("two", write)
    assert write.calls == 2


def test_a_cache_of_no_rows_is_a_cache_all_the_same(tmp_path):
    calls = []

    def write_nothing(writer):
        calls.append(1)
        return {}

    for _ in range(2):
        assert len(cache_of(tmp_path).obtain("key", write_nothing)) == 0
    assert calls == [1]


def test_overwriting_writes_again_but_only_in_the_first_process_of_the_machine(tmp_path):
    write = Writer()
    cache_of(tmp_path).obtain("key", write)
    assert cache_of(tmp_path).obtain("key", write, overwrite=True).metadata == {"calls": 2}
    other = cache_of(tmp_path, ranks=Ranks(1, 1, 2, 2))
    assert other.obtain("key", write, overwrite=True).metadata == {"calls": 2}


def test_a_damaged_file_is_made_again_and_the_log_says_so(tmp_path, caplog):
    write = Writer()
    cache_of(tmp_path).obtain("key", write)
    path = tmp_path / "key.arrow"
    path.write_bytes(path.read_bytes()[:-100])
    with caplog.at_level(logging.WARNING):
        rows = cache_of(tmp_path).obtain("key", write)
    assert rows.lengths.tolist() == [2, 3]
    assert write.calls == 2
    assert "key.arrow is damaged" in caplog.text


def test_leftovers_of_a_killed_writer_are_removed(tmp_path):
    (tmp_path / ".key.arrow.incomplete-node-1").write_bytes(b"half")
    cache_of(tmp_path).obtain("key", Writer())
    assert [path.name for path in tmp_path.iterdir()] == ["key.arrow"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, DataError])
def test_an_interrupted_writer_leaves_neither_file_nor_lock(tmp_path, error):
    def fail(writer):
        writer.write(chunk([5, 6]))
        raise error("stop")

    with pytest.raises(error):
        cache_of(tmp_path).obtain("key", fail)
    assert list(tmp_path.iterdir()) == []
    assert len(cache_of(tmp_path).obtain("key", Writer())) == 2


def test_a_full_disk_is_an_error_that_names_the_setting(tmp_path):
    def fail(writer):
        raise OSError(28, "No space left on device")

    with pytest.raises(DataError, match=r"No space left on device.*dataset_cache_dir"):
        cache_of(tmp_path).obtain("key", fail)


@pytest.mark.parametrize("folder", ["file", "file/below", "n" * 300])
def test_a_folder_that_cannot_be_one_is_an_error_that_names_the_setting(tmp_path, folder):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot take the prepared data: .* set dataset_cache_dir to another folder"):
        cache_of(tmp_path / folder).obtain("key", Writer())


def test_another_rank_gives_the_first_a_head_start_and_then_writes_itself(tmp_path):
    begin = time.monotonic()
    rows = cache_of(tmp_path, ranks=Ranks(1, 1, 2, 2), head_start_seconds=0.3).obtain("key", Writer())
    assert len(rows) == 2
    assert time.monotonic() - begin >= 0.3


def test_the_cache_is_in_the_folder_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert resolve_cache_dir(None) == tmp_path / "tunesmith"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert resolve_cache_dir(None).parts[-2:] == (".cache", "tunesmith")


def test_a_user_without_a_home_is_told_to_name_a_folder(monkeypatch, tmp_path):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert find_default_cache_dir() is None
    assert resolve_cache_dir(str(tmp_path)) == tmp_path
    with pytest.raises(DataError, match=r"this user has no home folder\. Set dataset_cache_dir"):
        resolve_cache_dir(None)


# Copies of this process: new ones would import everything again, which takes longer than what they do.
PROCESSES = multiprocessing.get_context("fork")


def slow_write(writer):
    writer.write(chunk([5, 6]))
    time.sleep(1)
    return {"writer": os.getpid()}


def obtain_in_process(folder, rank, answers):
    rows = cache_of(folder, ranks=Ranks(rank, rank, 3, 3)).obtain("key", slow_write)
    answers.put((rank, rows.metadata["writer"]))


def start(*args):
    process = PROCESSES.Process(target=obtain_in_process, args=args)
    process.start()
    return process


@pytest.mark.processes
def test_of_three_ranks_one_writes_and_all_read_its_file(tmp_path):
    answers = PROCESSES.Queue()
    processes = [start(tmp_path, rank, answers) for rank in (2, 1, 0)]
    results = dict(answers.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(timeout=10)
    assert set(results) == {0, 1, 2}
    assert set(results.values()) == {processes[2].pid}
    assert [path.name for path in tmp_path.iterdir()] == ["key.arrow"]


@pytest.mark.processes
def test_a_waiting_process_takes_over_when_the_writer_is_killed(tmp_path):
    answers = PROCESSES.Queue()
    first = start(tmp_path, 0, answers)
    deadline = time.monotonic() + 60
    while not (tmp_path / "key.lock").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    first.join(timeout=10)
    begin = time.monotonic()
    rows = cache_of(tmp_path).obtain("key", Writer())
    assert rows.metadata == {"calls": 1}
    assert time.monotonic() - begin < 5
    assert [path.name for path in tmp_path.iterdir()] == ["key.arrow"]


def test_data_prepared_before_is_copied_to_a_faster_folder(tmp_path):
    write = Writer()
    first = cache_of(tmp_path / "slow").obtain("key", write)
    copied = cache_of(tmp_path / "fast", origin=tmp_path / "slow").obtain("key", write)
    assert write.calls == 1
    assert copied.path.parent == tmp_path / "fast"
    assert copied.metadata == first.metadata
    assert [chunk.input_ids.tolist() for chunk in copied.chunks] == [chunk.input_ids.tolist() for chunk in first.chunks]


def test_data_that_does_not_fit_is_not_begun(tmp_path):
    with pytest.raises(DataError, match=r"needs about .* GiB"):
        cache_of(tmp_path).obtain("key", Writer(), expected_bytes=2**60)
    assert list(tmp_path.glob("*.arrow")) == []
