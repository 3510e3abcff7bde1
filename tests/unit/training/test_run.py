import json

import pytest

from tests.tiny.runs import tiny_run, write_dataset, write_model
from tunesmith.training.run import run_training


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_model(folder / "model")
    write_dataset(folder / "data")
    return folder


def test_a_run_leaves_everything_in_its_folder(place, tmp_path):
    out = tmp_path / "out"
    result = run_training(tiny_run(place, output_dir=str(out), plot_loss=True, num_train_epochs=2, save_steps=5))
    names = {path.name for path in out.iterdir()}
    assert names >= {
        "adapter_config.json",
        "adapter_model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "trainer_log.jsonl",
        "training_loss.png",
        "train_results.json",
        "all_results.json",
        "trainer_state.json",
        "data_report.json",
        "run.yaml",
        "plan.txt",
        "checkpoint-5",
    }
    figures = json.loads((out / "train_results.json").read_text())
    assert figures["train_loss"] == pytest.approx(result.metrics["train_loss"])
    assert figures["total_tokens"] > 0
    assert {"tokens_per_second", "peak_memory_gb", "data_wait_share"} <= figures.keys()
    losses = [json.loads(line)["loss"] for line in (out / "trainer_log.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0]
    assert not result.is_interrupted
