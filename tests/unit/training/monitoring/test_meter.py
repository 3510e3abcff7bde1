import json

import pytest
import torch

from tunesmith.training.monitoring.meter import RunMeter, StepCounts, count_real_tokens

CPU = torch.device("cpu")


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def close(meter, processes=1):
    return meter.close_window(lambda values: values * processes, CPU)


def test_a_window_reports_means_and_rates():
    clock = Clock()
    meter = RunMeter(clock)
    for loss in (2.0, 4.0):
        meter.add_step(StepCounts(items=10, real_tokens=30, computed_tokens=50))
        meter.add_loss(torch.tensor(loss / 2))  # two micro-batches share a step
        meter.add_loss(torch.tensor(loss / 2))
    meter.account.enter("data")
    clock.now += 1.0
    meter.account.enter("forward")
    clock.now += 3.0
    report = close(meter)
    assert report.loss == 3.0
    assert report.tokens_per_second == 15.0  # 60 in 4 s
    assert report.padded_tokens_per_second == 25.0
    assert report.times.longest_wait() == (0.25, 0)
    assert report.times.shares()["forward"] == 0.75
    assert meter.wait_seconds == 1.0
    assert (meter.items, meter.real_tokens, meter.computed_tokens) == (20, 60, 100)


def test_pauses_are_not_training_time():
    clock = Clock()
    meter = RunMeter(clock)
    meter.add_step(StepCounts(1, 60, 60))
    clock.now += 10.0
    meter.add_pause(4.0)
    assert close(meter).tokens_per_second == 10.0


def test_losses_of_processes_add_up():
    meter = RunMeter(Clock())
    meter.add_step(StepCounts(1, 1, 1))
    meter.add_loss(torch.tensor(1.5))  # its share of the step's mean
    assert close(meter, processes=2).loss == 3.0


def test_the_mean_over_the_run_weighs_steps_alike():
    meter = RunMeter(Clock())
    for losses in ((1.0,), (2.0, 6.0)):
        for loss in losses:
            meter.add_step(StepCounts(1, 1, 1))
            meter.add_loss(torch.tensor(loss))
        close(meter)
    assert meter.mean_loss == 3.0


def test_a_saved_meter_goes_on_in_the_middle_of_a_window():
    meter = RunMeter(Clock())
    meter.add_step(StepCounts(2, 3, 4))
    meter.add_loss(torch.tensor(0.1))
    other = RunMeter(Clock())
    other.load_state(json.loads(json.dumps(meter.state())))
    for one in (meter, other):
        one.add_step(StepCounts(2, 3, 4))
        one.add_loss(torch.tensor(0.7))
    first, second = close(meter), close(other)
    assert first.loss == second.loss
    assert first.loss == pytest.approx(0.4)
    assert meter.state() | {"busy_seconds": 0} == other.state() | {"busy_seconds": 0}


def test_a_resumed_run_knows_its_own_seconds_from_those_of_all():
    clock = Clock()
    meter = RunMeter(clock)
    meter.account.enter("data")
    clock.now += 2.0
    close(meter)
    other = RunMeter(clock)
    other.load_state(meter.state())
    other.account.enter("data")
    clock.now += 1.0
    close(other)
    assert other.phase_seconds.longest_wait()[0] == other.session_phase_seconds.longest_wait()[0] == 1.0
    assert (sum(other.phase_seconds.seconds[0]), sum(other.session_phase_seconds.seconds[0])) == (3.0, 1.0)


def test_padding_is_not_a_real_token():
    ids = torch.zeros(2, 4, dtype=torch.long)
    assert count_real_tokens({"input_ids": ids}) == 8
    assert count_real_tokens({"input_ids": ids, "attention_mask": torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])}) == 4
