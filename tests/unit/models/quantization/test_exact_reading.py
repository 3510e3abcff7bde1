"""Checkpoints in FP8, MXFP4 and compressed-tensors: read as the numbers that they mean, trained, merged and saved."""

import importlib.util
import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.tiny.compressed import write_fp8_model, write_int8_model, write_mxfp4_model
from tests.tiny.runs import tiny_run, write_dataset
from tunesmith.config import load_config
from tunesmith.export.merge import export_model
from tunesmith.models import load_model, load_tokenizer
from tunesmith.training.run import run_training

IDS = torch.arange(3, 40)[None]

NEEDS_PACKAGE = pytest.mark.skipif(
    importlib.util.find_spec("compressed_tensors") is None, reason="compressed-tensors is not installed"
)
WAYS = [
    pytest.param(write_fp8_model, id="fp8"),
    pytest.param(write_mxfp4_model, id="mxfp4"),
    pytest.param(write_int8_model, id="compressed-tensors", marks=NEEDS_PACKAGE),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("rows") / "data", num_rows=4)


def load(folder, **options):
    config = load_config(
        {"model_name_or_path": str(folder), "use_cpu": True, "infer_dtype": "float32"}, purpose="generate", environ={}
    )
    return load_model(config, load_tokenizer(config.model), is_trainable=False, **options)


def logits(model):
    with torch.no_grad():
        return model.eval()(input_ids=IDS, use_cache=False).logits.float()


@pytest.mark.parametrize("write", WAYS)
def test_the_weights_are_read_as_they_are_meant(tmp_path, write):
    meant = write(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert not loaded.quantization.is_compressed
    found = dict(loaded.model.named_parameters())
    assert {name for name in meant if name in found} == set(found)
    for name, value in found.items():
        torch.testing.assert_close(value.data.float(), meant[name].float(), atol=0.02, rtol=0.01, msg=name)


@pytest.mark.parametrize("write", WAYS)
def test_a_full_run_learns_and_saves_a_model_that_loads_as_it_was(tmp_path, data, write):
    write(tmp_path / "model")
    settings = {"finetuning_type": "full", "lora_rank": None, "learning_rate": 1e-3, "num_train_epochs": 2}
    result = run_training(tiny_run(tmp_path, dataset_dir=str(data), logging_steps=1, **settings))
    losses = [line["loss"] for line in result.state.log_history if "loss" in line]
    assert losses[-1] < losses[0]
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())
    torch.testing.assert_close(logits(load(tmp_path / "out").model), logits(result.trainer.model), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("write", WAYS)
def test_an_adapter_is_merged_into_what_the_weights_mean(tmp_path, data, write):
    write(tmp_path / "model")
    result = run_training(tiny_run(tmp_path, dataset_dir=str(data), max_steps=1, num_train_epochs=None))
    places = {"model_name_or_path": str(tmp_path / "out"), "export_dir": str(tmp_path / "merged"), "use_cpu": True}
    report = export_model(load_config({**places, "infer_dtype": "float32"}, purpose="export", environ={}))
    assert report.merge_difference < 1e-4
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    torch.testing.assert_close(logits(merged), logits(result.trainer.model), atol=1e-3, rtol=1e-3)
    assert all(value.dtype == torch.float32 for value in load_file(tmp_path / "merged" / "model.safetensors").values())
