import json

import torch
from transformers import TrainerControl, TrainerState

from tunesmith.training.monitoring.log import LogFile, cut_log, measure_memory, read_log, remove_line
from tunesmith.training.monitoring.meter import RunMeter

LLAMAFACTORY_KEYS = {
    "current_steps",
    "total_steps",
    "loss",
    "lr",
    "epoch",
    "percentage",
    "elapsed_time",
    "remaining_time",
    "throughput",
    "total_tokens",
}


def started_log(path, step=0):
    state = TrainerState(global_step=step, max_steps=10, is_world_process_zero=True)
    log = LogFile(path, RunMeter())
    log.on_train_begin(None, state, TrainerControl())
    return log, state


def test_a_line_has_the_keys_that_other_tools_read(tmp_path):
    log, state = started_log(tmp_path / "log.jsonl")
    state.global_step = 5
    log.on_log(
        None,
        state,
        TrainerControl(),
        {"loss": 2.5, "learning_rate": 1e-4, "grad_norm": 1.25, "epoch": 0.123456, "total_tokens": 77},
    )
    line = json.loads((tmp_path / "log.jsonl").read_text())
    assert line.keys() >= LLAMAFACTORY_KEYS | {"grad_norm", "memory_gb", "peak_memory_gb"}
    assert (line["current_steps"], line["total_steps"], line["percentage"]) == (5, 10, 50.0)
    assert (line["loss"], line["lr"], line["grad_norm"], line["epoch"]) == (2.5, 1e-4, 1.25, 0.1235)
    assert line["peak_memory_gb"] >= line["memory_gb"] > 0.05


def test_evaluations_are_lines_too_and_the_summary_is_not(tmp_path):
    log, state = started_log(tmp_path / "log.jsonl")
    log.on_log(None, state, TrainerControl(), {"eval_loss": 1.5, "eval_perplexity": 4.5})
    log.on_log(None, state, TrainerControl(), {"eval_second_loss": 1.25})
    log.on_log(None, state, TrainerControl(), {"train_loss": 2.0, "train_runtime": 3.0})
    lines = read_log(tmp_path / "log.jsonl")
    assert [line.get("eval_loss") for line in lines] == [1.5, None]
    assert lines[1]["eval_second_loss"] == 1.25
    assert "throughput" not in lines[0]


def test_only_the_main_process_writes(tmp_path):
    log, state = started_log(tmp_path / "log.jsonl")
    state.is_world_process_zero = False
    log.on_log(None, state, TrainerControl(), {"loss": 2.5})
    assert not (tmp_path / "log.jsonl").exists()


def write(path, *lines):
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))


def test_a_log_is_cut_back_to_a_step(tmp_path):
    path = tmp_path / "log.jsonl"
    write(path, {"current_steps": 2}, {"current_steps": 4, "eval_loss": 1.0}, {"current_steps": 6}, '{"current_st')
    cut_log(path, 4)
    assert [line["current_steps"] for line in read_log(path)] == [2, 4]


def test_a_new_run_starts_an_empty_log(tmp_path):
    path = tmp_path / "log.jsonl"
    write(path, {"current_steps": 0, "eval_loss": 1.0}, {"current_steps": 2})
    started_log(path)
    assert read_log(path) == []


def test_numbers_that_json_cannot_hold_are_null(tmp_path):
    """An fp16 gradient that overflowed; other readers of JSON stop at Python's `Infinity`."""
    log, state = started_log(tmp_path / "log.jsonl")
    log.on_log(None, state, TrainerControl(), {"loss": 2.5, "grad_norm": float("inf")})
    log.on_log(None, state, TrainerControl(), {"eval_loss": 900.0, "eval_perplexity": float("inf")})
    first, second = read_log(tmp_path / "log.jsonl")
    assert (first["loss"], first["grad_norm"], second["eval_perplexity"]) == (2.5, None, None)
    assert "Infinity" not in (tmp_path / "log.jsonl").read_text()


def test_a_gpu_that_the_run_leaves_alone_is_not_in_the_figures(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 2_000_000_000)
    peaks = iter([0, 3_000_000_000, 3_000_000_000])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: next(peaks))
    assert set(measure_memory()) == {"memory_gb", "peak_memory_gb"}
    found = measure_memory()
    assert (found["device_memory_gb"], found["device_peak_memory_gb"]) == (2.0, 3.0)


def test_the_accuracy_of_pairs_has_the_name_that_other_tools_read_too(tmp_path):
    log, state = started_log(tmp_path / "log.jsonl")
    log.on_log(None, state, TrainerControl(), {"loss": 0.5, "rewards/accuracies": 0.75})
    (line,) = read_log(tmp_path / "log.jsonl")
    assert (line["accuracy"], line["rewards/accuracies"]) == (0.75, 0.75)


def test_a_measurement_that_is_taken_again_takes_the_place_of_the_first(tmp_path):
    path = tmp_path / "trainer_log.jsonl"
    lines = [
        {"current_steps": 4, "loss": 2.0},
        {"current_steps": 8, "loss": 1.0},
        {"current_steps": 8, "eval_loss": 1.5},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    remove_line(path, {"current_steps": 8, "eval_loss": 1.5})
    assert read_log(path) == lines[:2]
    remove_line(path, {"current_steps": 8, "eval_loss": 1.5})
    assert read_log(path) == lines[:2]
