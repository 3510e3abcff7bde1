"""Answers from a model on a GPU."""

import json

import pytest

from tests.tiny.models import tiny_model
from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.config import GenerationConfig
from tunesmith.inference.local import LocalGenerator
from tunesmith.training.run import run_training

pytestmark = pytest.mark.gpu

PROMPTS = [[5, 6, 7], [9, 10, 11, 12, 13, 14], [20]]
GREEDY = GenerationConfig(do_sample=False, max_new_tokens=12)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_greedy_answers_are_those_of_the_cpu(device, family):
    tokenizer = byte_level_tokenizer()
    expected = LocalGenerator(tiny_model(family), tokenizer).generate(PROMPTS, GREEDY)
    generator = LocalGenerator(tiny_model(family).to(device), tokenizer)
    assert generator.generate(PROMPTS, GREEDY) == expected
    text = str(tokenizer.decode(expected[0], skip_special_tokens=True))
    assert "".join(generator.stream(PROMPTS[0], GREEDY)) == text


@pytest.mark.parametrize("finetuning_type", ["lora", "full", "freeze"])
@pytest.mark.parametrize("trains", [True, False])
def test_predictions_are_written_and_scored(run_on_device, tmp_path, finetuning_type, trains):
    freeze = {"freeze_trainable_layers": 1} if finetuning_type == "freeze" else {}
    config = run_on_device(
        finetuning_type=finetuning_type,
        bf16=True,
        do_train=trains,
        max_steps=2,
        do_predict=True,
        predict_with_generate=True,
        val_size=4,
        max_new_tokens=5,
        save_strategy="no",
        **freeze,
    )
    assert run_training(config).metrics["predict_num_predictions"] == 4
    lines = (tmp_path / "out" / "generated_predictions.jsonl").read_text(encoding="utf-8").splitlines()
    assert [set(json.loads(line)) for line in lines] == [{"prompt", "predict", "label"}] * 4
