from tunesmith.training.monitoring.pace import Pace, render_duration


def test_the_rest_takes_as_long_per_step_as_the_steps_of_this_process():
    now = [100.0]
    pace = Pace(lambda: now[0])
    now[0] = 500.0
    pace.start(20)  # resumed
    assert pace.remaining_seconds(20, 50) == 0.0
    now[0] = 530.0
    assert pace.elapsed_seconds == 30.0
    assert pace.remaining_seconds(30, 50) == 60.0  # 10 steps in 30 s, 20 left


def test_durations_read_as_hours_minutes_seconds():
    assert render_duration(3725.9) == "1:02:05"
    assert render_duration(-1.0) == "0:00:00"
