import errno
import json
from dataclasses import replace

import pytest

from tunesmith.runtime.ranks import Ranks
from tunesmith.training.assembly import assemble_trainer
from tunesmith.training.results import render_scores, render_summary, save_evaluation, save_plot, save_settings
from tunesmith.training.resume import find_run_id


def test_one_process_writes_what_the_run_is_about_to_do(make_parts):
    parts = make_parts()
    save_settings(replace(parts, ranks=Ranks(rank=1, world_size=2)), "plan", run_id="abc")
    assert not parts.output_dir.exists()
    save_settings(parts, "the plan", run_id="abc")
    assert {path.name for path in parts.output_dir.iterdir()} == {"run.yaml", "plan.txt", "data_report.json", ".run_id"}
    assert (parts.output_dir / "plan.txt").read_text() == "the plan\n"
    assert find_run_id(parts.output_dir) == "abc"


def test_weights_that_cannot_be_saved_whole_leave_the_older_ones(make_parts, monkeypatch):
    parts = make_parts()
    trainer = assemble_trainer(parts, None).trainer
    parts.output_dir.mkdir(parents=True, exist_ok=True)
    old = parts.output_dir / "adapter_model.safetensors"
    old.write_bytes(b"old")

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer.processing_class, "save_pretrained", stop)
    with pytest.raises(KeyboardInterrupt):
        trainer.save_model()
    assert [(path.name, path.read_bytes()) for path in parts.output_dir.iterdir()] == [(old.name, b"old")]


def test_the_summary_has_the_figures_that_count(make_parts):
    parts = make_parts()
    trainer = assemble_trainer(parts, None).trainer
    trainer.state.global_step = 1200
    trainer.meter.busy_seconds = 75.0
    figures = {
        "train_loss": 1.25,
        "total_tokens": 12345,
        "tokens_per_second": 164.6,
        "peak_memory_gb": 1.5,
        "data_wait_share": 0.031,
    }
    assert render_summary(parts, trainer, figures) == (
        "Trained 1,200 steps in 0:01:15: loss 1.2500, 12,345 tokens, 165 tokens/s, peak memory 1.50 GB, "
        f"3.1% of the time waiting for data.\nResults are in {parts.output_dir}."
    )

    trainer.state.global_step = 1
    assert render_summary(parts, trainer, figures).startswith("Trained 1 step in ")


def test_scores_are_shown_without_how_long_they_took():
    metrics = {"eval_loss": 1.25, "eval_runtime": 3.0, "eval_samples_per_second": 2.0, "epoch": 1.0, "eval_rows": 2}
    assert render_scores("Evaluation", "eval", metrics) == "Evaluation: loss 1.2500, rows 2."


@pytest.mark.parametrize(("settings", "num_evaluations"), [({}, 1), ({"load_best_model_at_end": True}, 2)])
def test_weights_are_not_evaluated_twice(settings, num_evaluations, make_parts, caplog):
    caplog.set_level("INFO", logger="tunesmith")
    parts = make_parts(
        do_eval=True, val_size=4, eval_strategy="steps", eval_steps=2, save_steps=2, max_steps=4, **settings
    )
    trainer = assemble_trainer(parts, None).trainer
    trainer.train()
    save_evaluation(parts, trainer, None)
    figures = json.loads((parts.output_dir / "eval_results.json").read_text())
    lines = [line for line in trainer.state.log_history if "eval_loss" in line and line["step"] == 4]
    assert len(lines) == num_evaluations
    assert figures["eval_loss"] == lines[-1]["eval_loss"]
    assert figures.keys() >= {"eval_loss", "eval_perplexity", "eval_runtime", "epoch"}
    assert f"Evaluation: loss {figures['eval_loss']:.4f}, perplexity" in caplog.text


def test_the_accelerator_s_memory_is_shown_where_there_is_one(make_parts):
    parts = make_parts()
    figures = {"train_loss": 1.0, "total_tokens": 1, "tokens_per_second": 1.0, "peak_memory_gb": 1.5}
    figures |= {"data_wait_share": 0.0, "device_peak_memory_gb": 70.25}
    assert "peak memory 70.25 GB" in render_summary(parts, assemble_trainer(parts, None).trainer, figures)


def test_a_picture_is_drawn_only_when_asked_for(make_parts):
    for draws in (False, True):
        parts = make_parts(plot_loss=draws, overwrite_output_dir=True)
        parts.output_dir.mkdir(parents=True, exist_ok=True)
        (parts.output_dir / "trainer_log.jsonl").write_text('{"current_steps": 1, "loss": 2.0, "lr": 0.1}\n')
        save_plot(parts)
        assert (parts.output_dir / "training_loss.png").exists() is draws


def test_a_picture_that_cannot_be_drawn_is_a_warning(make_parts, monkeypatch, caplog):
    def no_room(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tunesmith.training.results.plot_run", no_room)
    save_plot(make_parts(plot_loss=True))
    assert "No picture was drawn: [Errno 28] No space left on device" in caplog.text
