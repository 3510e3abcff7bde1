import time

import pytest

from tests.unit.training.io.sources import Rows, ids_of, refuse
from tunesmith.config.loading import LoadingConfig
from tunesmith.data.loading.samplers import SequentialSampler
from tunesmith.errors import ConfigError
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.io.settings import LoaderSettings
from tunesmith.training.io.trials import (
    PreparedRows,
    StandIn,
    Trial,
    choose_trial,
    list_settings,
    measure_grid,
    render_yaml,
)
from tunesmith.training.io.tuning import TuningReport, _enough_batches, check_picture, default_workers, draw_trials
from tunesmith.training.loaders import ProcessBatches


def path_of(rows):
    return PreparedRows(rows, ids_of, lambda: ProcessBatches(SequentialSampler(len(rows)), 2, Ranks()))


def trial(workers, rate, prefetch=2, **fields):
    return Trial(workers, prefetch, rate, 0.1, 100.0, 2**20, **{"crashes": 0, **fields})


def grid(rows, seconds=0.0, workers=(0,), prefetch=(2,), num_batches=6, repeats=1):
    return list(
        measure_grid(
            path_of(rows),
            StandIn(seconds, computes=False),
            list_settings(workers, prefetch),
            num_batches=num_batches,
            repeats=repeats,
        )
    )


def test_rate_and_waiting_are_measured():
    (found,) = grid(Rows(seconds=0.01), seconds=0.02)
    # Two rows of 10 ms, and 20 ms: on a busy machine all of it takes longer, never less.
    batch_seconds = 1 / found.batches_per_second
    assert found.wait_share * batch_seconds >= 0.02
    assert (1 - found.wait_share) * batch_seconds >= 0.02
    assert (found.num_workers, found.crashes, found.worker_bytes) == (0, 0, 0)


def test_a_small_set_is_gone_over_again():
    (found,) = grid(Rows(num_rows=4), num_batches=20)
    assert found.crashes == 0


@pytest.mark.processes
def test_workers_are_measured_with_their_memory():
    none, one = grid(Rows(seconds=0.02), seconds=0.05, workers=(0, 1), prefetch=(3,))
    assert none.worker_bytes == 0
    assert one.worker_bytes > 2**20
    assert one.prefetch_factor == 3


def test_a_crash_is_counted_and_told_and_not_recommended():
    (found,) = grid(Rows(trouble={3: refuse}), repeats=2)
    assert found.crashes == 2
    assert "failed at row 3" in found.trouble
    assert choose_trial([found]) is None
    assert choose_trial([found, trial(2, 1.0)]).num_workers == 2


def test_the_fewest_workers_among_those_as_good_as_the_best_are_recommended():
    trials = [trial(0, 5.0), trial(2, 9.8, prefetch=4), trial(2, 9.75), trial(8, 10.0), trial(4, 9.9, crashes=1)]
    assert choose_trial(trials) is trials[2]


def test_what_to_paste_has_no_prefetch_without_workers():
    assert render_yaml(trial(0, 1.0)) == "dataloader_num_workers: 0"
    assert render_yaml(trial(3, 1.0, prefetch=4)) == "dataloader_num_workers: 3\ndataloader_prefetch_factor: 4"


@pytest.mark.parametrize("computes", [False, True])
def test_a_stand_in_takes_its_time(computes):
    begin = time.perf_counter()
    StandIn(0.02, computes=computes)(None)
    assert time.perf_counter() - begin >= 0.02


def test_the_table_marks_the_recommended_line_and_ends_with_yaml():
    report = TuningReport((trial(0, 5.0), trial(2, 10.0), trial(4, 9.0, crashes=1, trouble="out of memory")), "a model")
    text = report.render()
    assert text.splitlines()[2].split("  ")[-1].strip() == "crashes"
    assert "      2         2      10.00    10.0%  100%          1 MiB        0  <- recommended" in text
    assert "out of memory" in text
    assert text.endswith("dataloader_num_workers: 2\ndataloader_prefetch_factor: 2")
    assert report.to_dict()["recommended"]["num_workers"] == 2


def test_what_would_be_refused_beside_the_pasted_lines_is_named():
    keys = LoadingConfig(dataloader_prefetch_factor=4, dataloader_persistent_workers=True).asks_for_workers
    text = TuningReport((trial(0, 5.0),), "a model", keys).render()
    assert text.endswith(
        "dataloader_num_workers: 0\n"
        "# and take out dataloader_prefetch_factor and dataloader_persistent_workers, which would need workers"
    )
    assert "take out" not in TuningReport((trial(1, 5.0),), "a model", keys).render()
    assert LoadingConfig(dataloader_persistent_workers=False).asks_for_workers == ()


def test_nothing_is_recommended_where_everything_crashed():
    report = TuningReport((trial(0, 0.0, crashes=1, trouble="broken"),), "a model")
    assert "nothing can be recommended" in report.render()
    assert report.to_dict()["recommended"] is None


@pytest.mark.parametrize(("seconds", "batches"), [(0.0, 30), (0.01, 30), (0.3, 20), (5.0, 6)])
def test_a_slow_model_is_measured_on_fewer_batches(seconds, batches):
    assert _enough_batches(seconds) == batches


def test_numbers_of_workers_double_from_none():
    numbers = default_workers()
    assert numbers[:3] == [0, 1, 2]
    assert numbers[-1] <= 8


def test_a_picture_is_drawn(tmp_path):
    crashed = trial(2, 0.0, crashes=3)
    for trials in ([trial(0, 5.0), trial(1, 6.0), trial(2, 7.0, prefetch=4)], [trial(0, 1.0)], [crashed]):
        draw_trials(trials, tmp_path / "io.png")
        assert (tmp_path / "io.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("place", ["", "io.png/io.png"])
def test_where_a_picture_cannot_be_written_nothing_is_measured(tmp_path, place):
    (tmp_path / "io.png").touch()
    with pytest.raises(ConfigError, match=r"--plot"):
        check_picture(tmp_path / place)
    check_picture(tmp_path / "new" / "io.png")
    assert not (tmp_path / "new").exists()


class FewerWorkers(PreparedRows):
    """Of which one less is started than asked for, as where open files are short."""

    def open(self, settings):
        return super().open(LoaderSettings(settings.num_workers - 1, settings.prefetch_factor))


def test_fewer_workers_than_asked_for_are_no_measurement_of_those():
    path = path_of(Rows())
    fewer = FewerWorkers(path.dataset, path.collator, path.build_batches)
    (found,) = measure_grid(fewer, lambda batch: None, [LoaderSettings(1)], num_batches=2, repeats=1)
    assert found.crashes == 1
    assert found.trouble == "1 worker, 2 batches ahead each: only 0 could be started."
