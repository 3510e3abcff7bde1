import pytest
import torch

from tunesmith.training.monitoring.account import (
    PHASES,
    CudaEvents,
    PhaseTimes,
    TimeAccount,
    describe_times,
    find_events,
    render_shares,
)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Device:
    """Marks whose work is done when `done` has reached them; a mark is a moment of the device."""

    def __init__(self):
        self.now, self.done, self.released = 0.0, float("inf"), []

    def mark(self):
        return [self.now]

    def find_seconds(self, first, second):
        return second[0] - first[0] if second[0] <= self.done else None

    def release(self, event):
        assert not any(event is other for other in self.released), "given back twice"
        self.released.append(event)


def seconds(**named):
    return [named.get(phase, 0.0) for phase in PHASES]


def step(account, clock, **lengths):
    for phase in PHASES:
        account.enter(phase)
        clock.now += lengths.get(phase, 0.0)


def test_the_parts_of_a_step_add_up_to_the_whole():
    clock = Clock()
    account = TimeAccount(clock)
    clock.now += 0.5  # before the first phase that has a name
    step(account, clock, data=1.0, copy=0.25, forward=2.0, backward=4.0, optimizer=0.125, other=0.5)
    taken = account.take()
    assert taken == [1.0, 0.25, 2.0, 4.0, 0.125, 1.0]
    assert sum(taken) == clock.now - 100.0
    assert account.take() == seconds()


def test_an_evaluation_in_the_middle_is_left_out():
    clock = Clock()
    account = TimeAccount(clock)
    account.enter("other")
    clock.now += 1.0
    with account.paused():
        clock.now += 50.0
    clock.now += 2.0
    assert account.take() == seconds(other=3.0)


def test_what_came_before_a_restart_is_forgotten():
    clock = Clock()
    account = TimeAccount(clock)
    clock.now += 9.0
    account.restart()
    clock.now += 1.0
    assert account.take() == seconds(other=1.0)


def test_work_of_a_device_is_measured_by_its_own_marks():
    clock, device = Clock(), Device()
    account = TimeAccount(clock, device)
    account.enter("data")
    clock.now += 3.0
    for phase, length in (("copy", 0.5), ("forward", 2.0), ("backward", 4.0), ("optimizer", 1.0)):
        account.enter(phase)
        clock.now += 0.001  # asking for the work takes no time to speak of
        device.now += length
    account.enter("other")
    clock.now += 7.0
    assert account.take() == pytest.approx(
        seconds(data=3.0, copy=0.5, forward=2.0, backward=4.0, optimizer=1.0, other=7.0)
    )
    assert len(device.released) == 5


def test_what_the_device_has_not_done_yet_comes_later():
    clock, device = Clock(), Device()
    account = TimeAccount(clock, device)
    account.enter("forward")
    device.now = 2.0
    account.enter("backward")
    device.now = 5.0
    account.enter("other")
    device.done = 2.0
    assert account.take() == seconds(forward=2.0)
    device.done = 5.0
    assert account.take() == seconds(backward=3.0)
    assert len(device.released) == 3


def test_time_without_work_inside_of_a_phase_of_the_device_can_be_counted_as_waiting():
    clock, device = Clock(), Device()
    account = TimeAccount(clock, device)
    account.enter("optimizer")
    account.move(3.0, "optimizer", "data")  # the device had nothing to do for so long before the optimizer began
    device.now = 5.0
    account.enter("other")
    assert account.take() == seconds(data=3.0, optimizer=2.0)


def test_marks_come_from_the_device_where_there_is_one():
    assert find_events(torch.device("cpu")) is None
    assert isinstance(find_events(torch.device("cuda")), CudaEvents)


def test_shares_are_over_all_processes_and_the_longest_wait_is_named():
    times = PhaseTimes([seconds(data=1.0, forward=9.0), seconds(data=4.0, forward=6.0)])
    assert times.shares()["data"] == 0.25
    assert times.longest_wait() == (0.4, 1)
    line = describe_times(times, num_steps=5)
    assert line["data_wait_share"] == 0.4
    assert line["data_wait_process"] == 1
    assert line["forward_share"] == 0.75
    assert line["step_seconds"] == 2.0
    assert render_shares(line).startswith("time: data 40% (process 1, the most), copy 0%, forward 75%")


def test_one_process_needs_no_number():
    line = describe_times(PhaseTimes([seconds(data=1.0, backward=3.0)]), num_steps=2)
    assert "data_wait_process" not in line
    assert render_shares(line) == "time: data 25%, copy 0%, forward 0%, backward 75%, optimizer 0%, other 0%"


def test_no_time_has_no_shares():
    assert PhaseTimes([seconds()]).shares() == dict.fromkeys(PHASES, 0.0)
    assert render_shares({"loss": 1.0}) is None
