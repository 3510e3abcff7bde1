"""From a run that rounds to a compressed model that loads again."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.tiny.models import tiny_model
from tests.tiny.runs import tiny_run, write_place
from tunesmith.config import load_config
from tunesmith.errors import ConfigError, ModelError
from tunesmith.export import compression
from tunesmith.export.compression import find_exact_layers
from tunesmith.export.merge import export_model
from tunesmith.models.quantization.qat import CompressionScheme
from tunesmith.training.run import run_training

pytest.importorskip("torchao")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return write_place(tmp_path_factory.mktemp("compression"), num_rows=8)


def export(out, **settings):
    return export_model(
        load_config({"export_dir": str(out), "use_cpu": True, **settings}, purpose="export", environ={})
    )


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_the_scheme_of_the_run_is_found_and_the_result_loads(place, tmp_path, kind, caplog):
    caplog.set_level("INFO", logger="tunesmith")
    more = {"finetuning_type": "full", "lora_rank": None, "learning_rate": 1e-3} if kind == "full" else {}
    run_training(
        tiny_run(
            place,
            output_dir=str(tmp_path / "out"),
            max_steps=2,
            num_train_epochs=None,
            save_strategy="no",
            qat="int4-weight",
            qat_start_step=1,
            **more,
        )
    )
    assert "14 layers round their weights from here on: int4-weight" in caplog.text
    assert CompressionScheme.read(tmp_path / "out") == CompressionScheme("int4-weight", 32)
    names = (
        {"model_name_or_path": str(tmp_path / "out")}
        if kind == "full"
        else {
            "model_name_or_path": str(place / "model"),
            "adapter_name_or_path": str(tmp_path / "out"),
        }
    )
    report = export(tmp_path / "small", quantize=True, **names)
    assert report.compressed == "int4-weight"
    export(tmp_path / "exact", **names)
    ids = torch.arange(3, 30)[None]
    small = AutoModelForCausalLM.from_pretrained(tmp_path / "small", dtype="auto")
    exact = AutoModelForCausalLM.from_pretrained(tmp_path / "exact", dtype="auto")
    assert "Intx" in type(small.model.layers[0].mlp.up_proj.weight).__name__
    with torch.no_grad():
        expected = exact(input_ids=ids).logits
        share = (small(input_ids=ids).logits - expected).abs().max() / expected.abs().max()
    assert 1e-4 < share < 0.4


def test_any_model_can_be_compressed_in_a_scheme_that_is_named(place, tmp_path):
    report = export(tmp_path / "out", model_name_or_path=str(place / "model"), quantize=True, qat="int8-weight")
    assert report.compressed == "int8-weight"
    assert "weights in float32, compressed to int8-weight (package torchao)" in (tmp_path / "out/README.md").read_text()


def test_layers_that_did_not_round_stay_exact():
    model = tiny_model(tied=False)
    model.prediction = model.lm_head
    del model.lm_head
    model.get_output_embeddings = lambda: model.prediction
    assert find_exact_layers(model, CompressionScheme("int8-weight", 32)) == ("prediction",)


def test_a_model_whose_inputs_do_not_divide_is_refused_before_anything_is_written(place, tmp_path):
    settings = {"quantize": True, "qat": "int4-weight", "qat_group_size": 24}
    with pytest.raises(ModelError, match="qat_group_size: 24 does not divide the 32 inputs of model"):
        export(tmp_path / "out", model_name_or_path=str(place / "model"), **settings)
    assert not (tmp_path / "out").exists()


def test_compressing_without_a_scheme_is_refused(place, tmp_path):
    with pytest.raises(ConfigError, match="quantize: true needs a scheme"):
        export(tmp_path / "out", model_name_or_path=str(place / "model"), quantize=True)
    assert not (tmp_path / "out").exists()


def test_a_reward_model_is_not_compressed(place):
    config = load_config({"quantize": True, "qat": "int8-weight"}, purpose="read", environ={})
    with pytest.raises(ConfigError, match="compresses language models, and this is a reward model"):
        compression.find_scheme(config, (), is_reward=True)


def test_a_compressed_model_that_loads_differently_is_removed(place, tmp_path, monkeypatch):
    logits = iter([torch.ones(4, 8), 2 * torch.ones(4, 8)])
    monkeypatch.setattr(compression, "measure_logits", lambda *_: next(logits))
    with pytest.raises(ModelError, match="quantize: the compressed model gives other logits after loading"):
        export(tmp_path / "out", model_name_or_path=str(place / "model"), quantize=True, qat="int8-weight")
    assert not (tmp_path / "out").exists()


def test_a_resumed_run_rounds_again(place, tmp_path, caplog):
    import shutil

    settings = {"num_train_epochs": None, "save_steps": 1, "qat": "int4-weight", "output_dir": str(tmp_path / "out")}
    whole = run_training(tiny_run(place, max_steps=2, **settings)).trainer.model
    shutil.rmtree(tmp_path / "out" / "checkpoint-2")
    again = run_training(tiny_run(place, max_steps=2, resume_from_checkpoint=True, **settings)).trainer.model
    for (name, one), (_, other) in zip(whole.named_parameters(), again.named_parameters(), strict=True):
        torch.testing.assert_close(one, other, msg=name)
