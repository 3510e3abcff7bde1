"""The whole way of a real model: converted, fine-tuned, its adapter loaded again, merged, and asked."""

import io
import json
import sys

import pytest

from tunesmith.cli.main import main
from tunesmith.config import load_config

pytestmark = pytest.mark.slow

NUM_TOKENS = 60
GREEDY = ["do_sample=false", f"max_new_tokens={NUM_TOKENS}", "use_cpu=true", "infer_dtype=float32"]


@pytest.fixture(scope="module")
def trained(smollm2, tmp_path_factory):
    """The folder of a short run of the quickstart recipe on 20 of its rows."""
    out = tmp_path_factory.mktemp("real") / "run"
    settings = ["max_samples=20", "num_train_epochs=4", "row_variables.name=Ada", "logging_steps=1"]
    machine = ["use_cpu=true", "bf16=false", "plot_loss=false"]
    words = [f"model_name_or_path={smollm2}", f"output_dir={out}", *settings, *machine]
    assert main(["train", "quickstart", *words]) == 0
    return out


@pytest.fixture(scope="module")
def merged(trained):
    folder = trained.parent / "merged"
    assert main(["export", str(trained), str(folder), "infer_dtype=float32"]) == 0
    return folder


@pytest.fixture
def ask(monkeypatch, capsys):
    def run(model, text):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert main(["chat", str(model), *GREEDY]) == 0
        return capsys.readouterr().out

    return run


def test_the_loss_falls(trained):
    lines = (trained / "trainer_log.jsonl").read_text(encoding="utf-8").splitlines()
    losses = [entry["loss"] for entry in map(json.loads, lines) if "loss" in entry]
    assert len(losses) == 12  # 20 rows in 3 steps, 4 times
    assert sum(losses[-3:]) < 0.7 * sum(losses[:3])


def test_the_adapter_is_loaded_again_and_has_learnt(smollm2, trained, ask):
    before, after = ask(smollm2, "Who are you?\n"), ask(trained, "Who are you?\n")
    assert "Ada" not in before
    assert "Ada" in after


def test_the_merged_model_answers_like_the_model_with_its_adapter(trained, merged, ask):
    questions = "Who are you?\nWhat is your name?\n"
    assert ask(merged, questions) == ask(trained, questions)


def test_an_answer_of_the_merged_model_stops_by_itself(merged):
    from tunesmith.data.records import Message
    from tunesmith.inference.load import load_generator

    loaded = load_generator(load_config(None, [f"model_name_or_path={merged}", *GREEDY], purpose="generate"))
    prompt = loaded.template.render_prompt([Message("user", "Who are you?")], add_generation_prompt=True)
    ids = loaded.tokenizer(prompt, add_special_tokens=False)["input_ids"]
    (answer,) = loaded.generator.generate([ids], loaded.options)
    assert 0 < len(answer) < NUM_TOKENS
    assert loaded.generator.stop_ids == (2,)
