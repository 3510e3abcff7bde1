import json
import struct

import pytest

from tunesmith.training.monitoring.plot import _draw, plot_run, smooth


def write_log(folder, num_steps=40):
    lines = []
    for step in range(1, num_steps + 1):
        lines.append(
            {"current_steps": step, "loss": 3 / step**0.5 + 0.1 * (step % 3), "lr": 1e-4 * step, "grad_norm": 1.0}
        )
        if step % 10 == 0:
            lines.append({"current_steps": step, "eval_loss": 3 / step**0.5})
    (folder / "trainer_log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_picture_of_the_log_is_drawn(tmp_path):
    write_log(tmp_path)
    path = plot_run(tmp_path)
    assert path == tmp_path / "training_loss.png"
    header = path.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", header[16:]) == (1350, 1275)


def test_one_line_is_enough(tmp_path):
    write_log(tmp_path, num_steps=1)
    assert plot_run(tmp_path) is not None


def test_nothing_is_drawn_of_nothing_and_said_so(tmp_path, caplog):
    assert plot_run(tmp_path) is None
    assert "no training loss" in caplog.text
    assert not (tmp_path / "training_loss.png").exists()


def test_smoothing_starts_at_the_first_value_and_keeps_constants():
    assert smooth([4.0, 4.0, 4.0]) == pytest.approx([4.0, 4.0, 4.0])
    smoothed = smooth([0.0, 1.0])  # half-life of one point: weights 1/4 and 1/2, over 3/4
    assert smoothed == pytest.approx([0.0, 2 / 3])


def write_preference_log(folder, names):
    lines = []
    for step in range(1, 21):
        numbers = dict.fromkeys(names, 0.5 + step / 50)
        lines.append({"current_steps": step, "loss": 1 / step, "lr": 1e-4, "rewards/chosen": 0.1, **numbers})
    lines.append({"current_steps": 20, "eval_loss": 0.1, **{f"eval_{name}": 0.6 for name in names}})
    (folder / "trainer_log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (("rewards/accuracies", "rewards/margins"), {"accuracy", "eval accuracy", "margin", "eval margin"}),
        (("accuracy", "margin"), {"accuracy", "eval accuracy", "margin", "eval margin"}),
        ((), {"rewards, chosen", "eval rewards, chosen"}),
    ],
    ids=["dpo", "rm", "kto"],
)
def test_preferences_get_a_panel_with_accuracy_and_margin(tmp_path, names, labels):
    figure = _draw(write_preference_log(tmp_path, names))
    legend = next(axes.get_legend() for axes in figure.axes[1:2])
    assert {text.get_text() for text in legend.get_texts()} == labels
    assert figure.axes[0].get_ylabel() == "loss per row"
    assert plot_run(tmp_path) is not None
