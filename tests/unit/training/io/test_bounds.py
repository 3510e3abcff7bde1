import os

import pytest

from tunesmith.runtime.open_files import OpenFileLimit
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.bounds import (
    FILES_PER_BATCH,
    FILES_PER_WORKER,
    SPARE_FILES,
    Demand,
    FileNeed,
    Machine,
    measure_worker_bytes,
    plan_open_files,
    prepare_open_files,
)

GIB = 2**30


def bound(processors=8.0, free=64 * GIB, processes=1, num_batches=1000, files=None, **demand):
    return Machine(processors, free, processes).bound(Demand(**demand), num_batches=num_batches, files=files)


@pytest.mark.parametrize(
    ("options", "workers", "reason"),
    [
        ({}, 8, "8 processors"),
        ({"model_cpus": 2.0}, 6, "processors"),
        ({"processors": 2.0, "model_cpus": 0.01}, 2, "processors"),
        ({"processors": 2.0, "model_cpus": 0.6}, 1, "processors"),
        ({"processes": 4}, 2, "2 processors"),
        ({"processors": 2.0, "model_cpus": 2.0}, 1, "processors"),  # one is worth a try
        ({"processors": 2.0, "cpu_share": 0.1}, 20, "processors"),  # workers that wait for the network
        ({"processors": 2.0, "cpu_share": 0.0}, 40, "processors"),
        ({"processors": 500.0}, 64, "more have never helped"),
        ({"free": 4 * GIB, "worker_bytes": GIB}, 2, "1024 MiB for each worker, 4.0 GiB free"),
        ({"num_batches": 3}, 3, "3 batches in an epoch"),
        ({"files": FileNeed(100, OpenFileLimit(200, 200))}, 4, "200 open files"),
    ],
)
def test_the_tightest_bound_holds_and_is_named(options, workers, reason):
    found = bound(**options)
    assert found.workers == workers
    assert reason in found.reason


def test_the_machine_is_looked_at():
    machine = Machine.measured(Ranks(0, 0, 4, 2))
    assert machine.processors > 0
    assert machine.free_bytes > 0
    assert machine.processes == 2


def test_the_need_of_files_is_counted_by_hand():
    need = FileNeed(held=20, limit=OpenFileLimit(256, 256))
    assert need.needed(4, 2) == 20 + SPARE_FILES + 4 * (FILES_PER_WORKER + 2 * FILES_PER_BATCH)
    assert need.most_workers(2) == (256 - 20 - SPARE_FILES) // (FILES_PER_WORKER + 2 * FILES_PER_BATCH)


def test_enough_files_change_nothing():
    plan = plan_open_files(4, 2, 1, FileNeed(20, OpenFileLimit(1024, 4096)))
    assert (plan.num_workers, plan.shares_by_name, plan.note) == (4, False, None)


def test_batches_are_shared_by_name_where_descriptors_are_short():
    plan = plan_open_files(6, 2, 2, FileNeed(20, OpenFileLimit(256, 256)))
    assert (plan.num_workers, plan.shares_by_name) == (6, True)
    assert "6 workers with 2 batches ahead need about 276 open files in each process (552 in all 2)" in plan.note
    assert "256 are allowed" in plan.note


def test_workers_are_lowered_where_that_is_not_enough():
    plan = plan_open_files(6, 2, 1, FileNeed(20, OpenFileLimit(100, 100)))
    assert (plan.num_workers, plan.shares_by_name) == (2, True)
    assert "2 workers are used" in plan.note
    assert "ulimit -Hn" in plan.note


def test_no_worker_at_all_is_said_as_what_it_means():
    plan = plan_open_files(6, 2, 1, FileNeed(20, OpenFileLimit(64, 64)))
    assert (plan.num_workers, plan.shares_by_name) == (0, False)
    assert "and 64 are allowed: batches are made in the training process. Raise the limit (ulimit -Hn)" in plan.note


def test_the_limits_of_this_process_are_used():
    assert prepare_open_files(1, 2, 1).num_workers == 1


def test_the_memory_of_processes_is_measured_as_far_as_it_can_be():
    assert measure_worker_bytes([os.getpid()]) > 2**20
    assert measure_worker_bytes([2**22 + 5]) is None
