"""Runs of the stages that learn from preferences, from a configuration to a folder."""

import json
import math

import pytest

from tests.tiny.runs import tiny_run, write_place
from tunesmith.errors import ConfigError, DataError, TrainingError
from tunesmith.training.monitoring.log import LOG_FILE, read_log
from tunesmith.training.plan import render_plan
from tunesmith.training.reference import WithoutAdapter
from tunesmith.training.run import prepare_parts, run_training


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return write_place(tmp_path_factory.mktemp("run"), attention_dropout=0.3)


def run(place, out, **settings):
    chosen = {"stage": "dpo", "dataset": "pairs", "logging_steps": 1, "num_train_epochs": 3, "save_strategy": "no"}
    return run_training(tiny_run(place, output_dir=str(out), **{**chosen, **settings}))


def plan_of(out):
    return (out / "plan.txt").read_text()


@pytest.mark.parametrize(
    ("settings", "reference"),
    [
        ({"lora_dropout": 0.2}, "the base model (the adapter switched off)"),
        (
            {"finetuning_type": "full", "lora_rank": None, "learning_rate": 1e-3},
            "the model as training starts from it (a frozen copy of ",
        ),
    ],
    ids=["lora", "full"],
)
def test_dpo_begins_at_log_2_and_learns(place, tmp_path, settings, reference):
    run(place, tmp_path, logging_first_step=True, plot_loss=True, val_size=4, eval_strategy="epoch", **settings)
    lines = [line for line in read_log(tmp_path / LOG_FILE) if "loss" in line]
    assert lines[0]["loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert lines[0]["rewards/margins"] == pytest.approx(0.0, abs=1e-5)
    assert lines[-1]["loss"] < 0.6
    assert lines[-1]["rewards/accuracies"] == lines[-1]["accuracy"] == 1.0
    plan = plan_of(tmp_path)
    assert f"reference: {reference}" in plan
    assert "loss:      sigmoid, beta 0.1" in plan
    evaluated = [line for line in read_log(tmp_path / LOG_FILE) if "eval_loss" in line][-1]
    assert {"eval_rewards/accuracies", "eval_rewards/margins", "eval_entropy"} <= evaluated.keys()
    assert "eval_perplexity" not in evaluated
    assert (tmp_path / "training_loss.png").exists()


@pytest.mark.parametrize(
    ("settings", "loss"),
    [
        (
            {"pref_ftx": 0.2, "dpo_label_smoothing": 0.1, "pref_bco_weight": 2.0},
            "sigmoid + 0.2 x cross entropy of the chosen, beta 0.1, label smoothing 0.1, mixed with 2 x bco_pair",
        ),
        ({"pref_length_normalization": True, "pref_beta": 2}, "sigmoid, beta 2, log-ratios per token"),
        ({"ld_alpha": 0.5}, "sigmoid, beta 0.1, what only the longer completion has weighs 0.5"),
        (
            {"stage": "kto", "dataset": "ratings", "pref_ftx": 0.2},
            "kto, beta 0.1, desirable completions weigh 1 and others 1, 0.2 x cross entropy of desirable completions",
        ),
        ({"stage": "rm", "center_rewards_coefficient": 0.01}, "Bradley-Terry, scores centred with weight 0.01"),
    ],
)
def test_the_plan_shows_all_that_the_loss_is_made_of(place, settings, loss):
    plan = render_plan(prepare_parts(tiny_run(place, **{"stage": "dpo", "dataset": "pairs", **settings})), None)
    assert f"loss:      {loss}\n" in plan


def test_losses_without_a_reference_run_without_one(place, tmp_path):
    settings = {"pref_loss": "orpo,simpo", "pref_loss_weights": "1,0.5", "packing": True, "cutoff_len": 96}
    result = run(place, tmp_path, **settings)
    assert "reference: none, the loss needs none" in plan_of(tmp_path)
    assert "loss:      orpo + 0.5 x simpo, beta 0.1" in plan_of(tmp_path)
    assert "several samples in each row" in plan_of(tmp_path)
    assert result.trainer.objective.reference is None


def test_kto_weighs_both_kinds_alike(place, tmp_path):
    settings = {"kto_chosen_weight": "auto", "kto_rejected_weight": "auto", "val_size": 6, "eval_strategy": "epoch"}
    run(place, tmp_path, stage="kto", dataset="ratings", **settings)
    report = json.loads((tmp_path / "data_report.json").read_text())
    assert report["train_examples"] == 18
    lines = [line for line in read_log(tmp_path / LOG_FILE) if "loss" in line]
    assert lines[0]["kl"] == pytest.approx(0.0, abs=1e-5)
    assert {"rewards/chosen", "rewards/rejected", "logps/chosen", "logits/rejected"} <= lines[-1].keys()
    assert lines[-1]["rewards/chosen"] > lines[-1]["rewards/rejected"]
    assert "desirable completions weigh" in plan_of(tmp_path)
    assert "eval_kl" in [line for line in read_log(tmp_path / LOG_FILE) if "eval_loss" in line][-1]


def test_the_best_checkpoint_can_be_that_of_the_widest_margin(place, tmp_path):
    settings = {"val_size": 4, "eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    result = run(place, tmp_path, metric_for_best_model="rewards/margins", **settings)
    assert result.state.best_metric == max(
        line["eval_rewards/margins"] for line in read_log(tmp_path / LOG_FILE) if "eval_loss" in line
    )
    with pytest.raises(ConfigError, match=r"`metric_for_best_model` is perplexity.*rewards/margins"):
        run(place, tmp_path, metric_for_best_model="perplexity", overwrite_output_dir=True, **settings)


def test_samples_ask_the_prompts_of_pairs(place, tmp_path, caplog):
    caplog.set_level("INFO", logger="tunesmith")
    run(place, tmp_path, sample_steps=3, num_train_epochs=1, max_new_tokens=3)
    shown = [message for message in caplog.messages if message.startswith("samples after step")]
    assert len(shown) == 2  # of 6 steps
    assert "What is 0 + 1?" in shown[0]


def test_a_reference_that_is_not_the_policy_is_found_before_the_first_step(place, tmp_path, monkeypatch):
    right = WithoutAdapter.completion_log_probabilities
    monkeypatch.setattr(WithoutAdapter, "completion_log_probabilities", lambda *args: right(*args) - 0.5)
    with pytest.raises(TrainingError, match=r"differ by .* per token.*the adapter switched off"):
        run(place, tmp_path)


def test_data_of_the_wrong_kind_is_refused(place, tmp_path):
    with pytest.raises(DataError, match=r"'toy' is not of the kind that stage dpo learns from"):
        run(place, tmp_path, dataset="toy")
    with pytest.raises(DataError, match="rated answers"):
        run(place, tmp_path, stage="kto", dataset="toy")
    with pytest.raises(DataError, match="Only one rated completion is left"):
        run(place, tmp_path, stage="kto", dataset="ratings", max_samples=1)


@pytest.mark.parametrize(("stage", "dataset"), [("dpo", "pairs"), ("kto", "ratings")])
def test_the_batch_size_can_be_found_out(place, tmp_path, stage, dataset):
    settings = {"per_device_train_batch_size": "auto", "gradient_accumulation_steps": 1, "num_train_epochs": 1}
    result = run(place, tmp_path, stage=stage, dataset=dataset, **settings)
    assert result.state.global_step == 3  # 24 rows, 8 a step


@pytest.mark.parametrize(
    ("ending", "remedy"),
    [
        ("", "take rows whose completions differ, or check which columns they are in"),
        ("No.", "Raise cutoff_len, so that what the completions differ in is not cut off"),
    ],
)
def test_pairs_that_are_all_the_same_are_refused_with_what_to_do(place, tmp_path, ending, remedy):
    answer = "Yes, of course it is. " * 20
    row = {"instruction": "Is it?", "chosen": answer, "rejected": answer + ending}
    (tmp_path / "same.json").write_text(json.dumps([row] * 3))
    with pytest.raises(DataError, match=f"All 3 rows were dropped:\n.*the same.*: 3(?s:.*){remedy}"):
        run(place, tmp_path / "out", dataset=str(tmp_path / "same.json"), cutoff_len=64)
