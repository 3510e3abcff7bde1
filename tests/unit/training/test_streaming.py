import errno
from itertools import islice

import pytest

from tests.unit.data.streaming.files import rows_of, text_spec, write_file
from tests.unit.data.streaming.sources import text_source
from tests.unit.training.io.sources import Busy, die, hang, refuse
from tunesmith.data.account import Tally
from tunesmith.data.collators import build_collator
from tunesmith.data.streaming.loader import StreamLoader
from tunesmith.errors import CheckpointError
from tunesmith.runtime.open_files import OpenFileLimit
from tunesmith.runtime.ranks import Ranks
from tunesmith.training import streaming
from tunesmith.training.io import bounds
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


def test_the_streams_of_a_checkpoint_are_kept_where_nobody_says_how_many_workers(source, tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "cpu_quota", lambda: 4.0)
    policy = LoaderPolicy(tunes_workers=True)
    written = feed_of(source, policy)
    assert (written.loader.num_streams, written.loader.num_workers) == (3, 3)
    written.save(tmp_path)
    monkeypatch.setattr(streaming, "cpu_quota", lambda: 1.0)
    other = feed_of(source, policy)
    assert (other.loader.num_streams, other.loader.num_workers) == (1, 0)
    other.load(tmp_path)
    assert (other.loader.num_streams, other.loader.num_workers) == (3, 0)  # as many as there is room for
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
    broken = feed_of(text_source(text_spec(path, bad_rows="error"), is_shuffled=False, buffer_size=4))
    with pytest.raises(FeedError, match=r"malformed row: a\.jsonl line 10: column 2 is not valid JSON"):
        take(broken, 9)


def test_a_row_that_cannot_be_read_is_left_out_and_counted_where_it_may_be(tmp_path):
    path = write_file(tmp_path / "a.jsonl", rows_of(4), kind=".jsonl")
    with path.open("a") as file:
        file.write('{nothing\n{"text": "last"}\n')
    feed = feed_of(text_source(text_spec(path), is_shuffled=False, buffer_size=8, epochs=1))
    assert len(take(feed, 3)[-1]) == 1
    (tally,) = feed.loader.tallies
    assert (tally.read, tally.used, tally.dropped) == (6, 5, {"malformed row": 1})
    assert tally.shown["malformed row"][0].startswith("a.jsonl byte ")


class Troubled:
    """A collator with trouble at its n-th batch, in whatever process; once in all where there is a place to note it."""

    def __init__(self, trouble, at, flag=None):
        self.trouble = trouble
        self.at = at
        self.flag = flag
        self.count = 0

    def __call__(self, items):
        self.count += 1
        if self.count == self.at and (self.flag is None or not self.flag.exists()):
            if self.flag is not None:
                self.flag.touch()
            self.trouble()
        return build_collator("padded", pad_token_id=417)(items)


def feed_with(source, collator, workers=0, **policy):
    chosen = LoaderPolicy(start=LoaderSettings(num_workers=workers), **policy)
    return StreamFeed(source, collator, chosen, batch_size=2, ranks=Ranks(), drop_last=False)


def rows_without_workers(source, streams, count):
    collator = build_collator("padded", pad_token_id=417)
    loader = StreamLoader(source, collator, batch_size=2, ranks=Ranks(), num_streams=streams)
    return [batch["row_ids"].tolist() for batch in islice(loader, count)]


def test_an_exception_that_passes_is_got_over_at_the_same_batch(source, tmp_path, caplog):
    feed = feed_with(source, Troubled(refuse, at=5, flag=tmp_path / "refused"))
    # Nothing is used until all is fetched: the place where the stream is built again is that of what came.
    assert [batch["row_ids"].tolist() for batch in islice(feed, 12)] == rows_without_workers(source, 1, 12)
    assert "The stream goes on at the same batch with no workers (attempt 1 of 2)." in caplog.text


def test_an_exception_that_stays_stops_the_run_with_its_traceback(source):
    feed = feed_with(source, Troubled(refuse, at=5), max_restarts=0)
    with pytest.raises(FeedError, match=r"failed with ValueError: the picture is broken. It was tried once") as caught:
        take(feed, 9)
    assert "in refuse" in str(caught.value)


def test_batches_fetched_ahead_come_in_their_turn(source):
    feed = feed_of(source)
    rows = []
    for number, batch in enumerate(islice(feed, 12)):
        rows.append(batch["row_ids"].tolist())
        feed.look_ahead(2, Busy(number % 4))
    assert rows == rows_without_workers(source, 1, 12)
    assert [batch["row_ids"].tolist() for batch in islice(feed, 3)] == rows[:3]  # none of them was used


def test_trouble_ahead_is_told_when_the_batch_is_due(source):
    feed = feed_with(source, Troubled(refuse, at=3), max_restarts=0)
    batches = iter(feed)
    next(batches)
    assert len(feed.look_ahead(4, Busy())) == 1
    assert feed.look_ahead(4, Busy()) == []
    next(batches)
    with pytest.raises(FeedError, match="the picture is broken"):
        next(batches)


@pytest.mark.processes
@pytest.mark.parametrize("used", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_dead_worker_is_replaced_and_no_row_is_repeated_left_out_or_moved(source, tmp_path, caplog, used):
    feed = feed_with(source, Troubled(die, at=4, flag=tmp_path / "dead"), workers=4)
    rows = []
    for batch in islice(feed, 24):
        rows.append(batch["row_ids"].tolist())
        if used:
            feed.advance(batch)
    assert rows == rows_without_workers(source, 4, 24)
    assert "was ended by SIGKILL" in caplog.text
    assert "goes on at the same batch with 2 workers" in caplog.text
    if used:  # a checkpoint of the two goes on with four
        feed.save(tmp_path)
        again = feed_with(source, build_collator("padded", pad_token_id=417), workers=4)
        again.load(tmp_path)
        assert take(again, 4) == rows_without_workers(source, 4, 28)[24:]


@pytest.mark.slow
@pytest.mark.processes
def test_a_worker_that_dies_every_time_stops_the_run_with_its_row_and_signal(source, monkeypatch):
    feed = feed_with(source, build_collator("padded", pad_token_id=417), workers=1, max_restarts=0)
    encoder = type(source.encoders[0])
    monkeypatch.setattr(encoder, "__call__", lambda *_: die())
    with pytest.raises(
        FeedError,
        match=r"Worker 1 of 1 \(process \d+\) was ended by SIGKILL while it was making data set texts, file .*jsonl, "
        r"line \d+ or a row that is read or encoded with it\. It was tried once",
    ):
        take(feed, 1)


@pytest.mark.slow
@pytest.mark.processes
def test_a_worker_that_hangs_shows_where_and_is_replaced(source, tmp_path, caplog):
    feed = feed_with(source, Troubled(hang, at=2, flag=tmp_path / "hung"), workers=1, timeout_seconds=500)
    watchdog, end_workers = feed._watchdog, feed.end_workers

    def end_and_have_patience():
        watchdog.timeout_seconds = 500
        end_workers()

    feed.end_workers = end_and_have_patience
    batches = iter(feed)
    rows = [next(batches)["row_ids"].tolist()]
    watchdog.timeout_seconds = 0.5  # for the batch that hangs alone: starting a worker may take its time
    rows += [next(batches)["row_ids"].tolist() for _ in range(4)]
    feed.close()
    assert rows == rows_without_workers(source, 1, 5)
    assert "Waiting for the next batch of the stream since" in caplog.text
    assert "in hang" in caplog.text
    assert "did not come within 500 s (data_timeout_seconds)" in caplog.text


@pytest.mark.processes
def test_a_stream_does_without_workers_that_cannot_be_started(source, monkeypatch, caplog):
    def start_none(loader):
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("tunesmith.data.streaming.loader.start_workers", start_none)
    assert take(feed_with(source, build_collator("padded", pad_token_id=417), workers=2), 6) == rows_without_workers(
        source, 2, 6
    )
    assert "temporarily unavailable): it goes on with no workers." in caplog.text


def test_a_stream_gets_along_with_the_open_files_there_are(source, monkeypatch, caplog):
    monkeypatch.setattr(bounds, "count_open_files", lambda: 100)
    monkeypatch.setattr(bounds, "raise_open_file_limit", lambda needed: OpenFileLimit(170, 170))
    monkeypatch.setattr("torch.multiprocessing.set_sharing_strategy", lambda name: None)
    feed = feed_with(source, build_collator("padded", pad_token_id=417), workers=4)
    assert take(feed, 5) == rows_without_workers(source, 4, 5)
    assert feed.loader.num_workers == 0
    assert "and 170 are allowed: 0 workers are used" in caplog.text


def test_the_account_adds_up_the_processes(source):
    one, other = Tally(read=3, used=2, dropped={"no text": 1}), Tally(read=4, used=4)
    (report,) = report_streamed(source, [[one], [other]])
    assert (report["name"], report["read"], report["used"], report["dropped"]) == ("texts", 7, 6, {"no text": 1})
