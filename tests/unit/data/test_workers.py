import os
import signal
import time

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
