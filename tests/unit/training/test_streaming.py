import re
import time
from dataclasses import replace
from functools import partial
from itertools import islice
from types import SimpleNamespace

import pytest

from tests.unit.data.streaming.files import rows_of, text_spec, write_file
from tests.unit.data.streaming.sources import text_source
from tests.unit.training.io.sources import Busy, die, refuse
from tunesmith.data.account import Tally
from tunesmith.data.collators import build_collator
from tunesmith.data.streaming.loader import StreamLoader
from tunesmith.errors import CheckpointError
from tunesmith.runtime.ranks import Ranks
from tunesmith.training import streaming
from tunesmith.training.io.failures import FeedError
from tunesmith.training.io.settings import LoaderPolicy, LoaderSettings
from tunesmith.training.io.tuner import Change
from tunesmith.training.streaming import StreamFeed, report_streamed


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

    def note(self):
        self.count += 1
        if self.count >= self.at and (self.flag is None or not self.flag.exists()):
            if self.flag is not None:
                self.flag.touch()
            self.trouble()

    def __call__(self, items):
        self.note()
        return build_collator("padded", pad_token_id=417)(items)


def feed_with(source, collator, workers=0, **policy):
    chosen = LoaderPolicy(start=LoaderSettings(num_workers=workers), **policy)
    return StreamFeed(source, collator, chosen, batch_size=2, ranks=Ranks(), drop_last=False)


def rows_without_workers(source, count):
    loader = StreamLoader(source, build_collator("padded", pad_token_id=417), batch_size=2, ranks=Ranks())
    return [batch["row_ids"].tolist() for batch in islice(loader, count)]


class Troubling:
    """An encoder of a data set with trouble at its n-th piece; once in all where there is a place to note it."""

    def __init__(self, encoder, *trouble, **when):
        self._encoder = encoder
        self.spec = encoder.spec
        self._trouble = Troubled(*trouble, **when)

    def __call__(self, chunk):
        self._trouble.note()
        return self._encoder(chunk)


def troubling(source, *trouble, **when):
    return replace(source, encoders=tuple(Troubling(encoder, *trouble, **when) for encoder in source.encoders))


def feed_on(source, workers=0, **policy):
    return feed_with(source, build_collator("padded", pad_token_id=417), workers, **policy)


@pytest.mark.parametrize("where", ["encoding", "collating"])
def test_an_exception_that_passes_is_got_over_at_the_same_batch(source, tmp_path, caplog, where):
    trouble = {"at": 5, "flag": tmp_path / "refused"}
    if where == "encoding":
        feed = feed_on(troubling(source, refuse, **trouble))
    else:
        feed = feed_with(source, Troubled(refuse, **trouble))
    # Nothing is used until all is fetched: the place where the stream is built again is that of what came.
    assert [batch["row_ids"].tolist() for batch in islice(feed, 12)] == rows_without_workers(source, 12)
    if where == "collating":  # what was encoded together is encoded row by row to know which it was, and that is well
        assert "The loader goes on at the same batch with no workers (attempt 1 of 2)." in caplog.text


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_an_exception_that_stays_stops_the_run_with_its_traceback_and_row(source, workers):
    feed = feed_on(troubling(source, refuse, at=3), workers, max_restarts=0)
    batches = iter(feed)
    rows = []
    with pytest.raises(FeedError) as caught:
        rows.extend(batch["row_ids"].tolist() for batch in batches)
    text = str(caught.value)
    assert re.search(r"Making the next batch of the stream failed at data set texts, file .*\.jsonl, line \d", text)
    assert "with ValueError: the picture is broken. It was tried once" in text
    assert "in refuse" in text
    # With two workers each has its own third piece; what both made before has come, whole windows of it.
    assert rows == rows_without_workers(source, 60)[: len(rows)]
    assert len(rows) == (2 if not workers else 4)


def test_an_exception_of_the_collator_that_stays_stops_the_run(source):
    feed = feed_with(source, Troubled(refuse, at=5), max_restarts=0)
    with pytest.raises(FeedError, match=r"failed with ValueError: the picture is broken\. It was tried once") as caught:
        take(feed, 9)
    assert "in refuse" in str(caught.value)


def test_a_stream_without_a_row_that_can_be_used_stops_the_run(tmp_path):
    path = write_file(tmp_path / "a.jsonl", [{"other": "x"}] * 5, kind=".jsonl")
    with pytest.raises(FeedError, match="Not one row of the data sets can be used"):
        next(iter(feed_on(text_source(text_spec(path)))))


def test_batches_fetched_ahead_come_in_their_turn(source):
    feed = feed_of(source)
    rows = []
    for number, batch in enumerate(islice(feed, 12)):
        rows.append(batch["row_ids"].tolist())
        feed.look_ahead(2, Busy(number % 4))
    assert rows == rows_without_workers(source, 12)
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
@pytest.mark.parametrize("packing", ["none", pytest.param("whole", marks=pytest.mark.slow)])
def test_rows_and_tokens_are_the_same_with_any_workers_that_change_on_the_way_and_after_resuming(
    source, tmp_path, packing
):
    source = replace(source, options=replace(source.options, packing=packing))
    whole = contents(islice(feed_on(source), 40))
    feed = feed_on(source)
    batches, taken = iter(feed), []
    for number, change in enumerate([(2, 1), (3, 2), (0, 2), (1, 3)]):
        for batch in islice(batches, 6):
            feed.advance(batch)
            taken += contents([batch])
        feed.pieces._wanted = Change(LoaderSettings(*change), "the test says so")
        if number == 2:
            feed.save(tmp_path)
            list(islice(batches, 3))  # fetched and not used
            feed.close()
            feed = feed_on(source, workers=2)
            feed.load(tmp_path)
            batches = iter(feed)
    taken += contents(islice(batches, 16))
    feed.close()
    assert taken == whole
    assert len(feed.pieces.record.changes) == 1


def contents(batches):
    return [(batch["row_ids"].tolist(), batch["input_ids"].tolist()) for batch in batches]


@pytest.mark.slow
@pytest.mark.processes
def test_a_dead_worker_is_replaced_and_no_row_is_repeated_left_out_or_moved(source, tmp_path, caplog):
    feed = feed_on(troubling(source, die, at=4, flag=tmp_path / "dead"), workers=4)
    assert take(feed, 24) == rows_without_workers(source, 24)
    assert "was ended by SIGKILL while it was making data set texts, file " in caplog.text
    assert "or a row that is encoded with it" in caplog.text
    assert "goes on at the same batch with 2 workers" in caplog.text
    feed.close()


@pytest.mark.slow
@pytest.mark.processes
def test_a_worker_that_dies_every_time_stops_the_run_with_its_row_and_signal(source):
    feed = feed_on(troubling(source, die, at=1), workers=1, max_restarts=0)
    with pytest.raises(
        FeedError,
        match=r"Worker 1 of 1 \(process \d+\) was ended by SIGKILL while it was making data set texts, file .*jsonl, "
        r"line \d+ or a row that is encoded with it\. It was tried once",
    ):
        take(feed, 1)


@pytest.mark.processes
def test_a_run_that_waits_for_its_stream_gets_workers(source, caplog):
    caplog.set_level("INFO")
    slow = troubling(source, partial(time.sleep, 0.01), at=1)
    feed = feed_on(slow, tunes_workers=True, tunes_prefetch=True)
    feed.pieces._tuner.window_seconds = 0.0
    feed.pieces._most_workers = 2
    # Nothing takes any time but encoding, so all of it is waiting, however busy the machine is.
    assert take(feed, 40) == rows_without_workers(source, 40)
    assert "Loader: no workers -> " in caplog.text
    feed.close()


def test_what_the_device_waits_for_is_seen_in_batches_fetched_ahead(source):
    feed = feed_on(source, tunes_workers=True)
    seen = []
    feed.pieces._tuner = SimpleNamespace(observe=seen.append)
    next(iter(feed))
    before = len(seen)
    feed.look_ahead(2, Busy(idle=7.0))  # since before
    assert len(seen) > before
    assert all(taken.waited == 0 for taken in seen[before:])


def test_pieces_that_fill_the_first_window_are_not_measured(source):
    long_windows = replace(source, options=replace(source.options, window_rows=10))  # of four pieces
    feed = feed_on(long_windows, tunes_workers=True)
    seen = []
    feed.pieces._tuner = SimpleNamespace(observe=seen.append)
    batches = iter(feed)
    next(batches)
    assert feed.pieces.position == 4
    assert seen == []
    list(islice(batches, 4))
    assert len(seen) == 4
    assert all(taken.elapsed >= taken.waited > 0 for taken in seen)


def test_batches_of_a_stream_are_pinned_where_that_is_asked_for(source, monkeypatch):
    pinned = []
    monkeypatch.setattr(streaming, "pin_batch", lambda batch: pinned.append(batch) or batch)
    take(feed_on(source, pins_memory=True), 3)
    assert len(pinned) == 3
    assert not feed_on(source, pins_memory=True).pieces.policy.pins_memory


def test_the_account_adds_up_the_processes(source):
    one, other = Tally(read=3, used=2, dropped={"no text": 1}), Tally(read=4, used=4)
    (report,) = report_streamed(source, [[one], [other]])
    assert (report["name"], report["read"], report["used"], report["dropped"]) == ("texts", 7, 6, {"no text": 1})
