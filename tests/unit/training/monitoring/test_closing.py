import pytest

from tests.unit.training.io.sources import Rows, feed_of, plan_of
from tunesmith.training.io.settings import LoaderSettings
from tunesmith.training.monitoring.account import PHASES, PhaseTimes
from tunesmith.training.monitoring.closing import render_feeding, render_minutes


def seconds(**named):
    return [named.get(phase, 0.0) for phase in PHASES]


def fed(batches, made_seconds, workers=0, **policy):
    feed = feed_of(Rows(), workers, **policy)
    feed.open(plan_of(32))
    feed.record.batches, feed.record.made_seconds = batches, made_seconds
    feed._most_workers = 2
    return feed


def told_of(times, feed, **options):
    return render_feeding(times, times, feed, **options)


def test_a_run_that_waited_is_told_how_many_workers_would_keep_up():
    times = PhaseTimes([seconds(data=261.0, forward=200.0, backward=381.0)])
    text = told_of(times, fed(4300, 843.0))
    assert text == (
        "Data waiting 31.0% of 14m02s; the loader makes 5.1 batches/s and the model takes 7.4; "
        "workers were 0 (dataloader_num_workers); with 2 it would keep up."
    )


def test_more_workers_than_there_is_room_for_are_not_promised():
    text = told_of(PhaseTimes([seconds(data=900.0, forward=300.0)]), fed(1000, 900.0))
    assert text.endswith("; it would take 4 to keep up, and the most here is 2 (with more, one failed before).")


def test_batches_that_are_made_of_what_the_feed_makes_are_counted_for_themselves():
    times = PhaseTimes([seconds(data=2.0, forward=8.0)])
    assert told_of(times, fed(0, 0.0), num_batches=0) == "Data waiting 20.0% of 10.0s."
    feed = fed(5, 20.0, 1, tunes_workers=True)
    feed._most_workers = 3
    assert told_of(times, feed, num_batches=40) == (
        "Data waiting 20.0% of 10.0s; the loader makes 2 batches/s and the model takes 5; "
        "workers were 1, as the run found out; with 3 it would keep up."
    )


def test_a_run_that_did_not_wait_needs_nothing():
    text = told_of(PhaseTimes([seconds(data=0.1, forward=50.0)]), fed(100, 0.1, tunes_workers=True))
    assert text == (
        "Data waiting 0.2% of 50.1s; the loader makes 1,000 batches/s and the model takes 2; "
        "workers were 0, as the run found out."
    )


def test_more_workers_than_the_run_had_use_for_are_commented_on_where_they_were_asked_for():
    times = PhaseTimes([seconds(data=0.1, forward=50.0)])
    assert told_of(times, fed(100, 0.1, 4)).endswith("workers were 4 (dataloader_num_workers); it would do without.")
    # 100 batches of 0.7 s in 50 s of the model: 1.4 workers, and a little more.
    assert told_of(times, fed(100, 70.0, 4)).endswith("workers were 4 (dataloader_num_workers); 2 would do.")
    assert told_of(times, fed(100, 70.0, 2)).endswith("workers were 2 (dataloader_num_workers).")
    assert told_of(times, fed(100, 0.1, 4, tunes_workers=True)).endswith("workers were 4, as the run found out.")


def test_workers_are_no_help_where_making_batches_is_not_what_was_waited_for():
    text = told_of(PhaseTimes([seconds(data=2.0, forward=8.0)]), fed(100, 0.1))
    assert text.endswith(
        "the loader makes 1,000 batches/s and the model takes 12.5; workers were 0 (dataloader_num_workers)."
    )


def test_rates_are_those_since_a_run_was_resumed():
    session = PhaseTimes([seconds(data=2.0, forward=8.0)])
    whole = PhaseTimes([seconds(data=3.0, forward=97.0)])
    text = render_feeding(whole, session, fed(40, 20.0))
    assert text.startswith("Data waiting 3.0% of 1m40s; the loader makes 2 batches/s and the model takes 5; workers")


def test_the_process_that_waited_most_is_named():
    feed = fed(10, 1.0, 2, tunes_workers=True)
    feed.record.changes.append("something")
    feed.settings = LoaderSettings(2)
    text = told_of(PhaseTimes([seconds(data=1.0, forward=9.0), seconds(data=4.0, forward=6.0)]), feed)
    assert text.startswith("Data waiting 40.0% of 10.0s in process 1, which waited most; the loader makes 20 batches/s")
    assert "workers were 2 at the end, as the run found out" in text


def test_nothing_fetched_says_nothing_about_rates():
    assert told_of(PhaseTimes([seconds(other=1.0)]), fed(0, 0.0)) == "Data waiting 0.0% of 1.0s."


@pytest.mark.parametrize(("value", "text"), [(3.25, "3.2s"), (842, "14m02s"), (3600, "1h00m00s"), (7384, "2h03m04s")])
def test_durations_read_like_speech(value, text):
    assert render_minutes(value) == text
