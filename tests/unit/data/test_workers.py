import itertools
import multiprocessing
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from tunesmith.data.workers import over_workers
from tunesmith.errors import DataError


def double_slowly(number):
    time.sleep(0.05 * (number % 3))  # later chunks finish first
    return 2 * number


def fail_at_five(number):
    if number == 5:
        raise ValueError("five is wrong")
    return number


def refuse_at_five(number):
    if number == 5:
        raise DataError("row 5 is malformed")
    return number


def die_at_five(number):
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


class CannotTravel:
    def __call__(self, number):
        return number

    def __setstate__(self, state):
        raise RuntimeError("cannot be unpacked")

    def __getstate__(self):
        return {"some": "state"}


pytestmark = pytest.mark.processes


def test_results_come_in_the_order_of_the_chunks():
    assert list(over_workers(iter(range(12)), double_slowly, 2)) == [2 * number for number in range(12)]


def test_chunks_are_read_only_a_few_ahead():
    taken = []

    def chunks():
        for number in range(50):
            taken.append(number)
            yield number

    results = over_workers(chunks(), double_slowly, 2)
    next(results)
    assert len(taken) <= 6
    results.close()


def test_an_error_in_a_worker_comes_with_its_traceback():
    with pytest.raises(ValueError, match="five is wrong") as caught:
        list(over_workers(range(100_000), fail_at_five, 2))
    assert "in fail_at_five" in str(caught.value.__cause__)


def test_an_error_for_the_user_stays_one():
    with pytest.raises(DataError, match="row 5 is malformed"):
        list(over_workers(range(10), refuse_at_five, 2))


def test_a_killed_worker_is_an_error_within_seconds():
    begin = time.monotonic()
    with pytest.raises(DataError, match=r"One of 2 preprocessing workers died.*Lower preprocessing_num_workers"):
        list(over_workers(range(100_000), die_at_five, 2))
    assert time.monotonic() - begin < 30


def test_work_that_cannot_be_unpacked_says_so():
    with pytest.raises(RuntimeError, match="cannot be unpacked"):
        list(over_workers(range(3), CannotTravel(), 1))


def write_id_and_wait(folder):
    (Path(folder) / f"{os.getpid()}").touch()
    time.sleep(0.01)


def keep_two_workers_busy(folder):
    list(over_workers(itertools.repeat(str(folder)), write_id_and_wait, 2))


def is_running(process_id):
    try:
        return psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE  # which nobody may be there to bury
    except psutil.NoSuchProcess:
        return False


def wait_until(holds):
    deadline = time.monotonic() + 30
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    parent = multiprocessing.get_context("spawn").Process(target=keep_two_workers_busy, args=(tmp_path,))
    parent.start()
    assert wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    parent.kill()
    parent.join()
    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert wait_until(lambda: not any(map(is_running, workers)))
