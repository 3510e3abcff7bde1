"""Runs of stage `rm` from settings to scores."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.tiny.runs import tiny_run, write_place
from tunesmith.training.run import prepare_parts, run_training

_ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path):
    return write_place(tmp_path, num_rows=12)


def train(folder, **settings):
    values = {"stage": "rm", "dataset": "pairs", "max_steps": 4, "learning_rate": 1e-3, "prefix_sharing": False}
    return run_training(tiny_run(folder, **{**values, **settings}))


def scores_of(trainer, rows):
    batch = trainer.prepare_rows(rows)
    objective, model = trainer.objective, trainer.model.eval()
    inputs = {
        key: batch[key] for key in batch if key in {"input_ids", "attention_mask", "position_ids", "cu_seq_lens_q"}
    }
    with torch.no_grad():
        return objective.scorer.score(model, inputs, batch["last_positions"])[0].tolist()


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_the_command_in_a_fresh_process_gives_the_scores_of_training(folder, tuning):
    result = train(folder, finetuning_type=tuning, lora_rank=4 if tuning == "lora" else None)
    trainer = result.trainer
    expected = scores_of(trainer, [trainer.train_dataset[row] for row in range(4)])
    out = folder / "scores.jsonl"
    words = ["score", str(folder / "out"), str(folder / "data" / "pairs.json"), f"--output={out}", "use_cpu=true"]
    code = "import sys; from tunesmith.cli.main import main; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": str(_ROOT / "src"), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code, *words], env=environment, check=True, capture_output=True)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    found = [line[side] for line in lines[:4] for side in ("chosen", "rejected")]
    assert found == pytest.approx(expected, abs=1e-4)


def test_accuracy_and_margin_are_logged_and_grow(folder):
    result = train(folder, max_steps=12, learning_rate=2e-2, logging_steps=1)
    log = [line for line in result.state.log_history if "loss" in line]
    assert {"accuracy", "margin", "rewards/chosen", "rewards/rejected"} <= set(log[0])
    assert log[-1]["margin"] > log[0]["margin"]
    assert log[-1]["loss"] < log[0]["loss"]


def test_accumulation_gives_the_same_weights(folder):
    def weights(name, batch, accumulation):
        settings = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
        result = train(folder, output_dir=str(folder / name), **settings)
        return {key: value.clone() for key, value in result.trainer.model.state_dict().items()}

    whole, parts = weights("whole", 4, 1), weights("parts", 1, 4)
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value, atol=1e-4, rtol=1e-3)


def test_the_padding_token_of_the_run_ends_no_text(folder):
    parts = prepare_parts(tiny_run(folder, stage="rm", dataset="pairs"))
    assert parts.tokenizer.pad_token != parts.tokenizer.eos_token
    assert parts.loaded.model.config.pad_token_id == parts.tokenizer.pad_token_id


def test_a_run_goes_on_where_it_stopped(folder):
    whole = train(folder, output_dir=str(folder / "whole"), save_steps=2)
    parts = shutil.copytree(folder / "whole", folder / "parts")
    resumed = train(folder, output_dir=str(parts), resume_from_checkpoint=str(parts / "checkpoint-2"))
    expected = whole.trainer.model.state_dict()
    for name, value in resumed.trainer.model.state_dict().items():
        torch.testing.assert_close(value, expected[name], atol=1e-6, rtol=1e-5)
