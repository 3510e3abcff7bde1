import time
from itertools import islice

import pytest

from tests.unit.data.streaming.files import rows_of, text_spec, write_file
from tests.unit.data.streaming.sources import text_source
from tunesmith.data.account import Tally
from tunesmith.data.collators import build_collator
from tunesmith.errors import CheckpointError
from tunesmith.runtime.ranks import Ranks
from tunesmith.training import streaming
from tunesmith.training.io.failures import FeedError
from tunesmith.training.io.settings import LoaderPolicy, LoaderSettings
from tunesmith.training.streaming import StreamFeed, report_streamed, resolve_workers


@pytest.fixture
def source(tmp_path):
    return text_source(text_spec(*[write_file(tmp_path / f"{n}.jsonl", rows_of(9), kind=".jsonl") for n in "abcd"]))


def feed_of(source, policy=None, ranks=None):
    collator = build_collator("padded", pad_token_id=417)
    return StreamFeed(source, collator, policy or LoaderPolicy(), batch_size=2, ranks=ranks or Ranks(), drop_last=False)


def take(feed, count):
    taken = []
    for batch in islice(feed, count):
        assert feed.has_rows(batch)
        feed.advance(batch)
        taken.append(batch["row_ids"].tolist())
    return taken


def test_a_place_is_saved_and_gone_back_to(source, tmp_path):
    whole = take(feed_of(source), 9)
    feed = feed_of(source)
    take(feed, 4)
    feed.save(tmp_path)
    other = feed_of(source)
    other.load(tmp_path)
    assert take(other, 5) == whole[4:]


def test_a_checkpoint_without_a_place_is_refused(source, tmp_path):
    with pytest.raises(CheckpointError, match=r"has no stream_state_1\.json"):
        feed_of(source, ranks=Ranks(1, 1, 2, 2)).load(tmp_path)


def test_the_number_of_workers_of_a_checkpoint_is_kept_where_nobody_says_one(source, tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "cpu_quota", lambda: 4.0)
    policy = LoaderPolicy(tunes_workers=True)
    written = feed_of(source, policy)
    assert written.loader.num_workers == 3
    written.save(tmp_path)
    monkeypatch.setattr(streaming, "cpu_quota", lambda: 1.0)
    other = feed_of(source, policy)
    assert other.loader.num_workers == 0
    other.load(tmp_path)
    assert other.loader.num_workers == 3
    with pytest.raises(CheckpointError, match="consumers was 3 and is 2"):
        feed_of(source, LoaderPolicy(start=LoaderSettings(num_workers=2))).load(tmp_path)


@pytest.mark.parametrize(
    ("quota", "processes", "most", "workers"), [(1, 1, 9, 0), (4, 1, 9, 3), (64, 1, 9, 4), (16, 8, 9, 1), (64, 1, 2, 2)]
)
def test_workers_take_the_processors_that_training_leaves(monkeypatch, quota, processes, most, workers):
    monkeypatch.setattr(streaming, "cpu_quota", lambda: float(quota))
    ranks = Ranks(0, 0, processes, processes)
    assert resolve_workers(LoaderPolicy(tunes_workers=True), ranks, most) == workers
    assert resolve_workers(LoaderPolicy(start=LoaderSettings(num_workers=7)), ranks, most) == 7


def test_a_row_that_cannot_be_read_stops_the_run_with_its_line(tmp_path):
    path = write_file(tmp_path / "a.jsonl", rows_of(9), kind=".jsonl")
    feed = feed_of(text_source(text_spec(path), is_shuffled=False, buffer_size=4))
    take(feed, 1)
    with path.open("a") as file:
        file.write("{nothing\n")
    broken = feed_of(text_source(text_spec(path), is_shuffled=False, buffer_size=4))
    with pytest.raises(FeedError, match=r"a\.jsonl: line 10: not valid JSON"):
        take(broken, 9)


def test_a_defect_of_the_program_is_no_dead_worker(source, monkeypatch):
    feed = feed_of(source)
    monkeypatch.setattr(type(source), "open", lambda *_: (_ for _ in ()).throw(RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        take(feed, 1)


@pytest.mark.processes
def test_a_worker_that_dies_is_an_error_within_seconds(source, monkeypatch):
    import os
    import signal

    feed = feed_of(source, LoaderPolicy(start=LoaderSettings(num_workers=1)))
    monkeypatch.setattr(type(source), "open", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(FeedError, match="A worker that reads and encodes rows is gone"):
        take(feed, 1)


@pytest.mark.processes
def test_a_worker_that_hangs_shows_where_and_stops_the_run(source, monkeypatch, caplog):
    def hang(*_):
        time.sleep(600)

    monkeypatch.setattr(type(source), "open", hang)
    feed = feed_of(source, LoaderPolicy(start=LoaderSettings(num_workers=1), timeout_seconds=500))
    feed._watchdog.timeout_seconds = 0.5
    with pytest.raises(FeedError, match=r"No batch came within 500 s \(data_timeout_seconds\)"):
        take(feed, 1)
    feed.close()
    assert "Waiting for the next batch of the stream since" in caplog.text
    assert "worker process" in caplog.text


def test_the_account_adds_up_the_processes(source):
    one, other = Tally(read=3, used=2, dropped={"no text": 1}), Tally(read=4, used=4)
    (report,) = report_streamed(source, [[one], [other]])
    assert (report["name"], report["read"], report["used"], report["dropped"]) == ("texts", 7, 6, {"no text": 1})
