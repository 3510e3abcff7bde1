"""The tuner against a simulated run: a model of fixed speed, and rows that take a while, wherever they are made."""

from dataclasses import dataclass

import pytest

from tunesmith.training.io.bounds import Bound
from tunesmith.training.io.settings import LoaderSettings
from tunesmith.training.io.tuner import Taken, Tuner


@dataclass
class Run:
    """Batches come at the rate that workers and cores allow; none waits longer than the loader needs."""

    model: float = 0.1
    make: float = 0.25
    cpu_share: float = 0.0
    receive: float = 0.0005
    cores: float = 100.0
    most: int = 64
    per_step: int = 1
    tunes: tuple = (True, True)
    burst: float = 0.0
    """Extra time of each eighth batch, in the mean part of `make`."""

    start: LoaderSettings = LoaderSettings()  # noqa: RUF009 - frozen

    def __post_init__(self):
        self.now = self.cpu = 0.0
        self.asked = []
        self.log = []
        self.rates = []
        self.tuner = Tuner(
            self.start, self.bound, tunes_workers=self.tunes[0], tunes_prefetch=self.tunes[1],
            batches_per_step=self.per_step, cpu_clock=lambda: self.cpu,
        )  # fmt: skip

    def bound(self, demand):
        self.asked.append(demand)
        return Bound(self.most, "what the test says")

    def go(self, batches):
        started, count = self.now, 0
        for number in range(batches):
            settings = self.tuner.settings
            slow = number % 8 == 7
            if settings.num_workers == 0:
                waited, made = self.make, self.make
            else:
                busy = min(settings.num_workers, self.cores)
                made = self.make * settings.num_workers / busy
                waited = max(self.receive, self.make / busy - self.model)
                if slow and self.burst and settings.num_workers * settings.prefetch_factor < self.burst / self.model:
                    waited += self.burst
            self.now += waited + self.model
            self.cpu += made * self.cpu_share if settings.num_workers == 0 else 0.0
            change = self.tuner.observe(Taken(waited, waited + self.model, made, made * self.cpu_share))
            count += 1
            if change is not None:
                self.log.append(change)
        self.rates.append(count / (self.now - started))
        return self.tuner.settings


def test_a_loader_that_takes_next_to_no_time_gets_no_workers():
    run = Run(model=0.1, make=0.001)
    assert run.go(300) == LoaderSettings(0, 2)
    assert run.log == []


def test_batches_that_are_made_as_fast_as_received_get_no_workers_however_fast_the_model():
    run = Run(model=0.001, make=0.001)
    assert run.go(2000) == LoaderSettings(0, 2)


@pytest.mark.parametrize(("model", "make", "least"), [(0.1, 0.05, 1), (0.1, 0.25, 3), (0.05, 0.4, 10), (0.2, 0.21, 2)])
def test_the_least_number_of_workers_that_keeps_up_is_found(model, make, least):
    run = Run(model=model, make=make)
    settings = run.go(300)
    assert settings.num_workers == least  # make / model x 1.15, rounded up
    assert run.go(100) == settings
    assert run.rates[-1] > 0.98 / model
    assert "the run waits" in run.log[0].reason


def test_what_every_batch_takes_to_be_received_is_no_reason_for_a_change():
    run = Run(model=0.02, make=0.05, receive=0.0015)
    settings = run.go(300)
    assert settings.num_workers == 3
    run.go(2000)
    assert len(run.log) == 1


def test_workers_are_bounded_and_the_reason_says_by_what():
    run = Run(model=0.1, make=0.5, most=2)
    assert run.go(200).num_workers == 2
    assert "6 are wanted, 2 is the most (what the test says)" in run.log[0].reason


def test_workers_that_make_nothing_faster_are_taken_back_and_not_asked_for_again():
    run = Run(model=0.1, make=0.3, cores=1.0)
    settings = run.go(2000)
    assert settings.num_workers == 4  # and not more, though the run goes on waiting
    assert any("made the run no faster" in change.reason for change in run.log)
    changes = len(run.log)
    run.go(500)
    assert len(run.log) == changes


def test_a_ceiling_is_forgotten_when_the_work_changes():
    run = Run(model=0.1, make=0.3, cores=1.0)
    run.go(1000)
    run.cores, run.make = 100.0, 0.9
    assert run.go(1000).num_workers == 11


def test_idle_workers_are_given_back():
    run = Run(model=0.1, make=0.5)
    assert run.go(100).num_workers == 6
    run.make = 0.05
    assert run.go(200).num_workers == 1
    assert "busy" in run.log[-1].reason
    run.make = 0.001
    assert run.go(200).num_workers == 0


def test_workers_that_were_missed_come_back_and_stay():
    run = Run(model=0.1, make=0.5)
    run.go(100)
    run.make = 0.05
    given_back = False
    for _ in range(400):
        settings = run.go(1)
        if settings.num_workers < 6 and not given_back:
            given_back, run.make = True, 0.5
    assert given_back
    assert run.go(200).num_workers == 6
    assert "the run waits" in run.log[-1].reason
    run.make = 0.05
    assert run.go(300).num_workers == 6  # once bitten


def test_uneven_batches_get_a_deeper_queue_before_more_workers():
    run = Run(model=0.1, make=0.15, burst=0.7, start=LoaderSettings(2, 2))
    settings = run.go(400)
    assert settings == LoaderSettings(2, 4)
    assert "uneven" in run.log[0].reason


@pytest.mark.parametrize(("tunes", "expected"), [((False, True), (2, 16)), ((True, False), (6, 2))])
def test_what_was_set_by_hand_stays(tunes, expected):
    run = Run(model=0.1, make=0.5, tunes=tunes, start=LoaderSettings(2, 2))
    settings = run.go(1000)
    assert settings.num_workers == expected[0]
    assert tunes[1] or settings.prefetch_factor == expected[1]


def test_windows_hold_whole_steps():
    run = Run(model=0.0, make=0.01, per_step=6)
    for number in range(1, 200):
        run.model = 1.2 if number % 6 == 0 else 0.0  # the model works after the last micro-batch of a step
        run.go(1)
    # 60 ms of making in 1.26 s: one worker is enough
    assert run.tuner.settings.num_workers in (0, 1)
    assert [change.settings.num_workers for change in run.log][:1] == [1]


def test_the_processor_time_of_a_worker_is_measured():
    run = Run(model=0.1, make=0.5, cpu_share=0.2)
    run.go(20)
    assert run.asked[0].cpu_share == pytest.approx(0.2)
    assert run.asked[0].model_cpus == pytest.approx(0.0, abs=1e-6)


def test_a_loader_that_was_rebuilt_is_watched_anew():
    run = Run(model=0.1, make=0.5)
    run.go(100)
    run.tuner.restart(LoaderSettings(1, 2))
    assert run.go(200).num_workers == 6
