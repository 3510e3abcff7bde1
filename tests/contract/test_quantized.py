"""What every way of keeping weights in fewer bits keeps: adapters learn, are saved, go on, load and merge."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests.tiny.runs import tiny_run, write_place
from tunesmith.config import load_config
from tunesmith.export.merge import export_model
from tunesmith.models import load_model, load_tokenizer
from tunesmith.models.adapters import attach_adapter
from tunesmith.training.run import run_training

IDS = torch.arange(3, 40)[None]

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "nf4": ("bitsandbytes", {"quantization_bit": 4}),
    "int8": ("bitsandbytes", {"quantization_bit": 8}),
    "nf4, dora": ("bitsandbytes", {"quantization_bit": 4, "use_dora": True}),
    "nf4, ia3": ("bitsandbytes", {"quantization_bit": 4, "finetuning_type": "ia3", "lora_rank": None}),
    "torchao 8": ("torchao", {"quantization_bit": 8, "quantization_method": "torchao"}),
    "hqq 4": ("hqq", {"quantization_bit": 4, "quantization_method": "hqq"}),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return write_place(tmp_path_factory.mktemp("quantized"), num_rows=8)


def settings_of(place: Path, way: str) -> dict[str, Any]:
    return {
        "output_dir": str(place / way.replace(" ", "-").replace(",", "")),
        "max_steps": 2,
        "per_device_train_batch_size": 8,  # every row in every step, so that losses can be compared
        "num_train_epochs": None,
        "logging_steps": 1,
        "save_steps": 1,
        **WAYS[way][1],
    }


@pytest.fixture(scope="module")
def trained(place):
    """Train a way once, whatever is asked about it; return its settings, its losses and its logits."""
    done: dict[str, tuple[dict[str, Any], list[float], Tensor]] = {}

    def get(way: str) -> tuple[dict[str, Any], list[float], Tensor]:
        if importlib.util.find_spec(WAYS[way][0]) is None:
            pytest.skip(f"{WAYS[way][0]} is not installed")
        if way not in done:
            settings = settings_of(place, way)
            trainer = run_training(tiny_run(place, **settings)).trainer
            losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
            done[way] = (settings, losses, logits(trainer.model))
        return done[way]

    return get


def logits(model: torch.nn.Module) -> Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=IDS, use_cache=False).logits


def load_again(settings: dict[str, Any], model: str) -> Tensor:
    names = ("quantization_bit", "quantization_method", "quantization_type", "double_quantization")
    config = load_config(
        {
            "model_name_or_path": model,
            "adapter_name_or_path": settings["output_dir"],
            "infer_dtype": "float32",
            "use_cpu": True,
            **{name: settings[name] for name in names if name in settings},
        },
        purpose="generate",
        environ={},
    )
    return logits(load_model(config, load_tokenizer(config.model), is_trainable=False).model)


@pytest.mark.parametrize("way", WAYS)
def test_it_learns_and_loads_with_the_same_logits(place, trained, way):
    settings, losses, expected = trained(way)
    assert losses[-1] < losses[0]
    torch.testing.assert_close(load_again(settings, str(place / "model")), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "way", [way if way in ("nf4", "hqq 4") else pytest.param(way, marks=pytest.mark.slow) for way in WAYS]
)
def test_it_goes_on_from_a_checkpoint(place, trained, way, tmp_path):
    settings, _, expected = trained(way)
    copy = tmp_path / "out"
    shutil.copytree(settings["output_dir"], copy)
    shutil.rmtree(copy / "checkpoint-2")
    again = {**settings, "output_dir": str(copy), "resume_from_checkpoint": True}
    torch.testing.assert_close(logits(run_training(tiny_run(place, **again)).trainer.model), expected)


@pytest.mark.parametrize("way", WAYS)
def test_it_is_merged_into_the_exact_weights(place, trained, way, tmp_path):
    settings, _, _ = trained(way)
    names = {"model_name_or_path": str(place / "model"), "adapter_name_or_path": settings["output_dir"]}
    bits = settings["quantization_bit"]
    out = {"export_dir": str(tmp_path / "merged"), "use_cpu": True, "quantization_bit": bits}
    if settings.get("quantization_method"):
        out["quantization_method"] = settings["quantization_method"]
    export_model(load_config({**names, **out}, purpose="export", environ={}))
    exact = AutoModelForCausalLM.from_pretrained(place / "model", dtype=torch.float32)
    expected = logits(attach_adapter(exact, settings["output_dir"]))
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    torch.testing.assert_close(logits(merged), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.slow  # the libraries of all ways are imported again
@pytest.mark.processes
def test_a_new_process_loads_the_same(place, trained, tmp_path):
    wanted = {}
    for way in ("nf4", "torchao 8", "hqq 4"):
        if importlib.util.find_spec(WAYS[way][0]) is not None:
            settings, _, expected = trained(way)
            wanted[way] = ({key: value for key, value in settings.items() if value is not None}, expected)
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({way: settings for way, (settings, _) in wanted.items()}))
    code = (
        "import json, sys, torch; from tests.contract.test_quantized import load_again; "
        "asked = json.load(open(sys.argv[1])); "
        "torch.save({way: load_again(each, sys.argv[2]) for way, each in asked.items()}, sys.argv[3])"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(asked), str(place / "model"), str(tmp_path / "found.pt")], check=True
    )
    found = torch.load(tmp_path / "found.pt")
    for way, (_, expected) in wanted.items():
        torch.testing.assert_close(found[way], expected, atol=1e-4, rtol=1e-4)
