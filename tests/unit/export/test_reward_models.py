"""Reward models, merged and written for everybody: the scores of the exported folder are those of training."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.tiny.runs import write_model
from tunesmith.config import load_config
from tunesmith.errors import ModelError
from tunesmith.export.merge import export_model
from tunesmith.models import load_model, load_tokenizer
from tunesmith.models.reward import resolve_score_head, set_scoring_pad

TEXTS = ["The capital of France is Paris.<|im_end|>", "Hello"]

_IN_A_FRESH_PROCESS = """
import json, sys
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
model = AutoModelForSequenceClassification.from_pretrained(sys.argv[1]).eval()
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
inputs = tokenizer(json.loads(sys.argv[2]), padding=True, return_tensors="pt")
with torch.no_grad():
    print(json.dumps(model(**inputs).logits[:, 0].tolist()))
"""


@pytest.fixture
def base(tmp_path):
    return write_model(tmp_path / "base")


def scores_of(model, tokenizer):
    """Rate the texts one by one, as they are."""
    head = resolve_score_head(model)
    with torch.no_grad():
        ids = [torch.tensor([tokenizer(text)["input_ids"]]) for text in TEXTS]
        return [head.score(model.eval(), {"input_ids": row}, torch.tensor([row.numel() - 1]))[0].item() for row in ids]


@pytest.fixture
def adapter(base, tmp_path):
    """An adapter of a reward model after some training, and the scores it gives."""
    config = load_config(
        {"model_name_or_path": str(base), "output_dir": str(tmp_path), "dataset": "x", "use_cpu": True, "bf16": False},
        purpose="read",
    )
    config = replace(config, objective=replace(config.objective, stage="rm"))
    tokenizer = load_tokenizer(config.model)
    set_scoring_pad(tokenizer)
    model = load_model(config, tokenizer).model
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(tmp_path / "adapter")
    tokenizer.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter", scores_of(model, tokenizer)


def export(model, out, *adapters, **settings):
    values = {"model_name_or_path": str(model), "export_dir": str(out), "use_cpu": True, **settings}
    if adapters:
        values["adapter_name_or_path"] = [str(adapter) for adapter in adapters]
    return export_model(load_config(values, purpose="export", environ={}))


@pytest.mark.slow
@pytest.mark.processes
def test_a_fresh_process_with_transformers_alone_gives_the_scores_of_training(base, adapter, tmp_path):
    folder, expected = adapter
    report = export(base, tmp_path / "merged", folder)
    assert report.is_reward
    assert report.merge_difference < 1e-4
    environment = {**os.environ, "PYTHONPATH": ""}
    command = [sys.executable, "-c", _IN_A_FRESH_PROCESS, str(tmp_path / "merged"), json.dumps(TEXTS)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert json.loads(found.splitlines()[-1]) == pytest.approx(expected, abs=1e-5)


def test_an_adapter_folder_alone_is_enough(adapter, tmp_path):
    folder, expected = adapter
    export(folder, tmp_path / "merged")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "merged")
    assert scores_of(model, AutoTokenizer.from_pretrained(tmp_path / "merged")) == pytest.approx(expected, abs=1e-5)
    assert not (tmp_path / "merged" / "generation_config.json").exists()


def test_the_type_asked_for_is_written_and_reloads_alike(adapter, tmp_path):
    folder, _ = adapter
    report = export(folder, tmp_path / "merged", infer_dtype="bfloat16")
    assert load_file(tmp_path / "merged" / "model.safetensors")["score.weight"].dtype == torch.bfloat16
    assert report.reload_difference <= 1e-2


def test_padding_ends_no_text_in_the_exported_folder(adapter, tmp_path):
    folder, _ = adapter
    export(folder, tmp_path / "merged")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "merged")
    settings = json.loads((tmp_path / "merged" / "config.json").read_text())
    assert tokenizer.pad_token != tokenizer.eos_token
    assert settings["pad_token_id"] == tokenizer.pad_token_id
    assert settings["architectures"] == ["LlamaForSequenceClassification"]


def test_a_value_head_of_llama_factory_becomes_a_classifier_without_its_bias(base, tmp_path, caplog):
    weight = torch.randn(1, 32)
    tensors = {"v_head.summary.weight": weight, "v_head.summary.bias": torch.tensor([0.5])}
    save_file(tensors, base / "value_head.safetensors")
    with caplog.at_level("WARNING"):
        export(base, tmp_path / "merged")
    assert "has a bias of 0.5" in caplog.text
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "merged")
    assert torch.equal(model.score.weight, weight)


def test_stage_rm_on_a_language_model_is_refused_and_leaves_nothing(base, tmp_path):
    config = load_config(
        {"model_name_or_path": str(base), "export_dir": str(tmp_path / "out"), "use_cpu": True}, purpose="export"
    )
    with pytest.raises(ModelError, match="has no score head"):
        export_model(replace(config, objective=replace(config.objective, stage="rm")))
    assert not (tmp_path / "out").exists()
