import multiprocessing
import time

import pytest

from tunesmith.training.io import watchdog as watchdog_module
from tunesmith.training.io.making import WorkerStart, stack_file
from tunesmith.training.io.watchdog import Watchdog, collect_worker_stacks


def sleep_long(folder, is_ready):
    WorkerStart(folder)(0)
    is_ready.set()
    time.sleep(600)


@pytest.fixture
def worker(tmp_path):
    is_ready = multiprocessing.Event()
    process = multiprocessing.Process(target=sleep_long, args=(str(tmp_path), is_ready), daemon=True)
    process.start()
    is_ready.wait()
    yield process.pid
    process.kill()
    process.join()


@pytest.mark.processes
def test_a_worker_that_is_asked_again_tells_only_where_it_is_now(worker, tmp_path):
    for _ in range(2):
        (text,) = collect_worker_stacks([worker], str(tmp_path))
        assert text.startswith(f"worker process {worker}:\n")
        assert text.count("in sleep_long") == 1


def test_a_worker_that_has_not_begun_is_left_alone(tmp_path):
    # Were it asked, this process would end.
    (text,) = collect_worker_stacks([multiprocessing.current_process().pid], str(tmp_path))
    assert text.endswith("it has not begun")


def test_a_worker_that_is_gone_wrote_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(watchdog_module, "_WRITING_SECONDS", 0.1)
    nobody = 2**22 + 5
    stack_file(str(tmp_path), nobody).touch()
    (text,) = collect_worker_stacks([nobody], str(tmp_path))
    assert text.endswith("it wrote nothing: it is gone or stopped")


def test_a_wait_is_reported_again_each_time_it_has_lasted_as_long_once_more(caplog):
    alarms = []
    watchdog = Watchdog(0.05, on_alarm=lambda: alarms.append(1))
    with watchdog.watching("something"):
        while len(alarms) < 2:
            time.sleep(0.01)
    watchdog.close()
    assert "Waiting for something since" in caplog.text
    assert "while len(alarms) < 2" in caplog.text or "time.sleep(0.01)" in caplog.text  # where this thread was


def test_a_wait_within_another_is_watched_by_itself(caplog):
    watchdog = Watchdog(500)
    with watchdog.watching("all of it"):
        with watchdog.watching("a part"):
            assert watchdog._watch.what == "a part"
        assert watchdog._watch.what == "all of it"
    watchdog.close()
    assert watchdog._watch is None
    assert caplog.text == ""
