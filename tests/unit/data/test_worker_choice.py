import logging
import time

import pytest

from tunesmith.data import worker_choice
from tunesmith.data.worker_choice import Measured, Room, can_start_workers, choose_workers, over_helpful_workers

ROOM = Room(processors=8.0, memory_bytes=64 << 30, worker_bytes=1 << 30)


def test_python_that_leaves_cores_idle_gets_workers():
    assert choose_workers(Measured(rows=1000, wall_seconds=1, cpu_seconds=1, rows_left=100_000), ROOM) == 8


def test_a_tokenizer_that_keeps_all_cores_busy_gets_none():
    assert choose_workers(Measured(rows=1000, wall_seconds=1, cpu_seconds=7.5, rows_left=10_000_000), ROOM) == 1


def test_what_is_done_before_workers_have_started_gets_none():
    # alone 14 s; together 10 s of starting and 14 / 8 s of work
    assert choose_workers(Measured(rows=1000, wall_seconds=1, cpu_seconds=1, rows_left=14_000), ROOM) == 1
    # alone 20 s, 0.7 of which is 14 s; together 12.5 s
    assert choose_workers(Measured(rows=1000, wall_seconds=1, cpu_seconds=1, rows_left=20_000), ROOM) == 8


@pytest.mark.parametrize(
    ("room", "number"),
    [
        (Room(8.0, 8 << 30, 1 << 30), 4),  # half of the memory
        (Room(8.0, 3 << 30, 1 << 30), 1),
        (Room(2.5, 64 << 30, 1 << 30), 2),
        (Room(1.0, 64 << 30, 1 << 30), 1),
    ],
)
def test_memory_and_processors_are_the_bound(room, number):
    assert choose_workers(Measured(rows=1000, wall_seconds=1, cpu_seconds=1, rows_left=1_000_000), room) == number


@pytest.mark.parametrize("measured", [Measured(1000, 1, 1, None), Measured(0, 0, 0, 1000)])
def test_an_unknown_amount_of_work_starts_none(measured):
    assert choose_workers(measured, ROOM) == 1


def test_a_script_of_ones_own_has_to_ask_for_workers():
    assert not can_start_workers()  # the main module of these tests is pytest


def triple(number):
    return 3 * number


def run(numbers, rows_left):
    return list(over_helpful_workers(iter(numbers), triple, count_rows=lambda _: 1, rows_left=lambda: rows_left))


def test_few_rows_are_done_here(monkeypatch):
    monkeypatch.setattr(worker_choice, "over_workers", None)
    assert run(range(5), 0) == [0, 3, 6, 9, 12]
    assert run([], 0) == []


@pytest.mark.processes
def test_workers_go_on_behind_the_rows_that_were_measured(monkeypatch, caplog):
    monkeypatch.setattr(worker_choice, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(worker_choice, "can_start_workers", lambda: True)
    monkeypatch.setattr(worker_choice, "measure_room", lambda: Room(2.0, 64 << 30, 1 << 20))
    monkeypatch.setattr(worker_choice, "choose_workers", lambda measured, room: int(room.processors))
    with caplog.at_level(logging.INFO):
        started = time.monotonic()
        assert run(range(6), 100) == [0, 3, 6, 9, 12, 15]
    assert "Tokenizing in 2 processes" in caplog.text
    assert time.monotonic() - started < 60
