import errno
import signal
import threading
from types import SimpleNamespace

import pytest

from tests.unit.training.io.sources import Busy, Rows, die, feed_of, hang, plan_of, refuse
from tunesmith.data.collators import build_collator
from tunesmith.runtime.open_files import OpenFileLimit
from tunesmith.training.io import bounds, failures
from tunesmith.training.io.bounds import Demand
from tunesmith.training.io.failures import FeedError, describe_silence
from tunesmith.training.io.feed import BatchFeed
from tunesmith.training.io.making import RowMarks
from tunesmith.training.io.pipe import WorkerPipe
from tunesmith.training.io.settings import LoaderPolicy, LoaderSettings
from tunesmith.training.io.tuner import Change
from tunesmith.training.io.worker_group import WorkerGroup


@pytest.fixture
def opened():
    feeds = []

    def open_feed(*arguments, num_batches=12, **options):
        feed = feed_of(*arguments, **options)
        feed.open(plan_of(num_batches))
        feeds.append(feed)
        return feed

    yield open_feed
    for feed in feeds:
        feed.close()


def take_all(feed, num_batches=12, start=0):
    return [feed.take(position) for position in range(start, num_batches)]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_batches_come_in_the_order_of_the_plan(opened, workers):
    assert take_all(opened(Rows(), workers)) == plan_of(12)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_a_feed_begins_where_it_is_asked_to(opened, workers):
    assert take_all(opened(Rows(), workers), start=5) == plan_of(12)[5:]


@pytest.mark.processes
def test_changes_between_batches_lose_repeat_and_move_nothing(opened):
    feed = opened(Rows(num_rows=200), num_batches=60)
    taken = []
    sizes = iter([(1, 2), (3, 4), (2, 2), (0, 2), (2, 1)])
    for position in range(60):
        if position % 10 == 5:
            feed._wanted = Change(LoaderSettings(*next(sizes, (1, 1))), "the test says so")
        taken.append(feed.take(position))
    assert taken == plan_of(60)
    assert len(feed.record.changes) == 6


@pytest.mark.processes
def test_kept_workers_make_the_next_epoch_too(opened):
    feed = opened(Rows(), 2, num_batches=5)
    first = take_all(feed, 5)
    processes = feed.worker_processes
    feed.open(plan_of(5)[::-1])
    assert take_all(feed, 5) == first[::-1]
    assert feed.worker_processes == processes
    assert len(processes) == 2


@pytest.mark.processes
def test_an_epoch_left_in_the_middle_leaves_nothing_to_the_next(opened):
    feed = opened(Rows(), 2)
    take_all(feed, 3)
    feed.open(plan_of(4)[::-1])
    assert take_all(feed, 4) == plan_of(4)[::-1]


@pytest.mark.processes
def test_batches_of_tensors_are_those_of_the_plan_through_every_change():
    policy = LoaderPolicy(start=LoaderSettings(2, 3))
    feed = BatchFeed(Rows(num_rows=120), build_collator("padded", pad_token_id=0), policy)
    taken, expected = [], []
    for plan in (plan_of(30), plan_of(60)[::-1], plan_of(20)):  # the first two are left in the middle
        feed.open(plan)
        for position in range(20):
            if position == 10:
                feed._wanted = Change(LoaderSettings(3, 1), "the test says so")
            taken.append(feed.take(position))
        expected += plan[:20]
    feed.close()
    # Only now: what was received stays as it was, whatever came after it.
    assert [batch["row_ids"].tolist() for batch in taken] == expected
    assert all(batch["input_ids"].tolist() == [[5, 6, 7]] * 2 for batch in taken)


@pytest.mark.processes
def test_workers_that_are_not_kept_are_others_in_the_next_epoch(opened):
    feed = opened(Rows(), 1, keeps_workers=False)
    take_all(feed)
    before = feed.worker_processes
    feed.open(plan_of(3))
    assert take_all(feed, 3) == plan_of(3)
    assert set(before).isdisjoint(feed.worker_processes)


@pytest.mark.processes
def test_a_killed_worker_is_named_with_row_and_signal_and_replaced(opened, tmp_path, caplog):
    handler = signal.getsignal(signal.SIGCHLD)
    feed = opened(Rows(trouble={9: die}, flags=tmp_path), 4, describe_row="row {} of the table".format)
    assert take_all(feed) == plan_of(12)
    message = caplog.text
    assert "was ended by SIGKILL while it was making row 9 of the table" in message
    assert "goes on at the same batch with 2 workers" in message
    assert "(attempt 1 of 2)" in message
    assert feed.settings.num_workers == 2
    assert signal.getsignal(signal.SIGCHLD) is handler


@pytest.mark.slow
@pytest.mark.processes
def test_a_row_that_kills_every_worker_stops_the_run(opened):
    feed = opened(Rows(trouble={9: die}), 2, max_restarts=1)
    taken = []
    with pytest.raises(FeedError, match=r"ended by SIGKILL while it was making row 9.*tried 2 times"):
        taken.extend(feed.take(position) for position in range(12))
    # What a worker had made and not yet sent when it died is lost with it.
    assert taken == plan_of(4)[: feed.position]


@pytest.mark.processes
def test_a_worker_killed_while_it_holds_a_lock_holds_up_nobody(opened):
    feed = opened(Rows(), 1)
    feed.take(0)
    (pipe,) = feed._pipes
    pipe._iterator._workers_done_event._cond.acquire()  # as the worker does when it asks whether to leave
    pipe.kill_workers()
    closing = threading.Thread(target=feed._drop_pipes, daemon=True)
    closing.start()
    closing.join(timeout=30)
    assert not closing.is_alive()


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_an_exception_in_a_row_comes_with_row_and_traceback(opened, workers):
    feed = opened(Rows(trouble={5: refuse}), workers, max_restarts=0)
    assert take_all(feed, 2) == plan_of(2)
    with pytest.raises(FeedError) as caught:
        feed.take(2)
    message = str(caught.value)
    assert "Making batch 3 of 12 failed at row 5 with ValueError: the picture is broken" in message
    assert "tried once (dataloader_restarts is 0)" in message
    assert "in refuse" in message
    assert caught.value.exit_code == 6


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_an_exception_that_passes_is_got_over_at_the_same_batch(opened, tmp_path, caplog, workers):
    feed = opened(Rows(trouble={5: refuse}, flags=tmp_path), workers)
    assert take_all(feed) == plan_of(12)
    assert "goes on at the same batch" in caplog.text


def test_trouble_long_ago_is_forgiven(opened, tmp_path, monkeypatch):
    monkeypatch.setattr(failures, "_FORGIVEN_AFTER", 3)
    rows = Rows(num_rows=80, trouble=dict.fromkeys((2, 22, 42, 62), refuse), flags=tmp_path)
    feed = opened(rows, num_batches=40, max_restarts=1)
    assert take_all(feed, 40) == plan_of(40)


def test_a_filler_is_named_after_the_row_it_copies(opened):
    feed = opened(Rows(trouble={-8: refuse}), max_restarts=0)
    feed.open([[-8]])
    with pytest.raises(FeedError, match="failed at row 7 "):
        feed.take(0)


@pytest.mark.processes
def test_a_worker_that_hangs_shows_its_stack_and_is_replaced(opened, tmp_path, caplog):
    feed = opened(Rows(trouble={4: hang}, flags=tmp_path), 2, timeout_seconds=500)
    watchdog, end_workers = feed._watchdog, feed.end_workers

    def end_and_have_patience():
        watchdog.timeout_seconds = 500
        end_workers()

    feed.end_workers = end_and_have_patience
    assert take_all(feed, 2) == plan_of(2)
    watchdog.timeout_seconds = 0.5  # for the batch that hangs alone: starting workers may take its time
    assert take_all(feed, start=2) == plan_of(12)[2:]
    assert "Waiting for batch 3 of 12 since" in caplog.text
    assert "in hang" in caplog.text  # the stack of the worker
    assert "thread MainThread" in caplog.text
    assert (
        "did not come within 500 s (data_timeout_seconds); the workers, which were at row 4, were ended" in caplog.text
    )


@pytest.mark.processes
def test_workers_that_were_at_no_row_are_told_without_one():
    trouble = describe_silence(WorkerGroup([object()], RowMarks(1)), "batch 3", 2.0, "row {}".format)
    assert trouble.what.endswith("within 2 s (data_timeout_seconds); the workers were ended")


def test_workers_are_lowered_to_the_open_files_there_are(opened, monkeypatch, caplog):
    monkeypatch.setattr(bounds, "count_open_files", lambda: 100)
    monkeypatch.setattr(bounds, "raise_open_file_limit", lambda needed: OpenFileLimit(185, 185))
    used = []
    monkeypatch.setattr("torch.multiprocessing.set_sharing_strategy", used.append)
    feed = opened(Rows(), 4)
    assert take_all(feed) == plan_of(12)
    assert used == ["file_system"]
    assert feed.settings.num_workers == 2
    assert "and 185 are allowed: 2 workers are used" in caplog.text


@pytest.mark.processes
def test_workers_that_cannot_be_started_are_done_without(opened, monkeypatch, caplog):
    start = WorkerPipe.start

    def start_one_at_most(pipe, *arguments):
        if pipe.settings.num_workers > most:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        start(pipe, *arguments)

    monkeypatch.setattr(WorkerPipe, "start", start_one_at_most)
    for most, left in ((1, "1 worker, 2 batches ahead each"), (0, "no workers")):
        feed = opened(Rows(), 4, tunes_prefetch=True)
        assert take_all(feed) == plan_of(12)
        assert feed.settings.render() == left
        assert f"temporarily unavailable): it goes on with {left}." in caplog.text
        assert feed.find_bound(Demand()).workers == most


@pytest.mark.processes
def test_a_run_that_waits_gets_workers_and_loses_no_row_by_it(opened, caplog):
    caplog.set_level("INFO")
    feed = opened(Rows(num_rows=200, seconds=0.01), num_batches=60, tunes_workers=True, tunes_prefetch=True)
    feed._tuner.window_seconds = 0.0
    feed._most_workers = 2
    # Nothing takes any time but making batches, so all of it is waiting, however busy the machine is.
    assert take_all(feed, 60) == plan_of(60)
    assert "Loader: no workers -> " in caplog.text
    assert feed.record.changes[0].split(": ", 1)[1].startswith("the run waits ")


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_batches_fetched_ahead_come_in_their_turn(opened, workers):
    feed = opened(Rows(num_rows=80), workers, num_batches=30)
    taken = []
    for position in range(30):
        taken.append(feed.take(position))
        if position == 7:
            feed._wanted = Change(LoaderSettings(1, 2), "the test says so")
        feed.look_ahead(2, Busy(position % 4))
    assert taken == plan_of(30)
    assert feed.look_ahead(2, Busy()) == []


def test_no_more_is_fetched_ahead_than_wanted_or_than_there_is(opened):
    feed = opened(Rows(), num_batches=4)
    feed.take(0)
    assert feed.look_ahead(2, Busy()) == plan_of(4)[1:3]
    assert feed.look_ahead(2, Busy()) == []
    assert feed.look_ahead(9, Busy()) == plan_of(4)[3:]
    feed.open(plan_of(4)[::-1])
    assert feed.take(0) == plan_of(4)[3]


@pytest.mark.parametrize(("idle", "waited"), [(0.0, 0.0), (0.25, 0.25)])
def test_what_the_device_waits_for_is_seen_in_batches_fetched_ahead(opened, idle, waited):
    feed = opened(Rows(), tunes_workers=True)
    seen = []
    feed._tuner = SimpleNamespace(observe=seen.append)
    feed.take(0)
    feed.look_ahead(1, Busy(idle=idle))
    feed.take(1)
    assert seen[0].waited == pytest.approx(waited, abs=0.05)
    assert seen[0].made < 0.05


def test_trouble_ahead_is_told_when_the_batch_is_due(opened):
    feed = opened(Rows(trouble={5: refuse}), max_restarts=0)
    feed.take(0)
    assert feed.look_ahead(3, Busy()) == plan_of(2)[1:]
    assert feed.take(1) == plan_of(2)[1]
    with pytest.raises(FeedError, match="failed at row 5"):
        feed.take(2)
