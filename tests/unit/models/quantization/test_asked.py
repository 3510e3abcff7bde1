"""Weights compressed while loading: they stay near the exact ones, take an adapter, and learn."""

import logging

import pytest
import torch
from peft import PeftModel

from tests.tiny.models import tiny_model
from tunesmith.config.quantization import QuantizationConfig
from tunesmith.errors import MissingDependencyError, ModelError
from tunesmith.models import load_model, load_tokenizer
from tunesmith.models.quantization import asked
from tunesmith.models.quantization.asked import build_compression

IDS = torch.arange(3, 40)[None]
CPU = torch.device("cpu")

WAYS = [
    pytest.param({"quantization_bit": 4}, "bitsandbytes", 0.3, id="nf4"),
    pytest.param({"quantization_bit": 4, "quantization_type": "fp4"}, "bitsandbytes", 0.4, id="fp4"),
    pytest.param({"quantization_bit": 8}, "bitsandbytes", 0.05, id="int8"),
    pytest.param({"quantization_bit": 4, "quantization_method": "torchao"}, "torchao", 0.4, id="torchao-4"),
    pytest.param({"quantization_bit": 8, "quantization_method": "torchao"}, "torchao", 0.05, id="torchao-8"),
    pytest.param(
        {"quantization_bit": 8, "quantization_method": "torchao", "quantization_type": "fp8"},
        "torchao",
        0.15,
        id="torchao-fp8",
    ),
    pytest.param({"quantization_bit": 4, "quantization_method": "hqq"}, "hqq", 0.3, id="hqq-4"),
]


@pytest.mark.parametrize(("settings", "package", "tolerance"), WAYS)
def test_compressed_models_answer_nearly_as_exact_ones_and_their_adapters_learn(
    run_config, model_folder, settings, package, tolerance
):
    pytest.importorskip(package)
    config = run_config(model_name_or_path=str(model_folder), bf16=False, lora_rank=4, **settings)
    loaded = load_model(config, load_tokenizer(config.model), layout="flat")
    assert isinstance(loaded.model, PeftModel)
    assert loaded.quantization.is_compressed
    assert any("frozen weights are kept as" in note for note in loaded.notes)
    exact = tiny_model("llama")(input_ids=IDS).logits
    found = loaded.model.eval()(input_ids=IDS).logits
    share = ((found - exact).abs().max() / exact.abs().max()).item()
    assert 1e-4 < share < tolerance  # compressed indeed, and still the same model
    losses = _train(loaded.model.train())
    assert losses[-1] < losses[0] - 0.05


def _train(model, steps: int = 6) -> list[float]:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert all(parameter.dtype == torch.float32 for parameter in trained)
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = model(input_ids=IDS, labels=IDS).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_double_quantisation_and_the_types_reach_bitsandbytes(monkeypatch):
    pytest.importorskip("bitsandbytes")
    settings = QuantizationConfig(quantization_bit=4, quantization_type="fp4", double_quantization=False)
    made = build_compression(settings, CPU, torch.bfloat16, shards_weights=False).loading["quantization_config"]
    assert (made.bnb_4bit_quant_type, made.bnb_4bit_use_double_quant) == ("fp4", False)
    assert (made.bnb_4bit_compute_dtype, made.bnb_4bit_quant_storage) == (torch.bfloat16, torch.uint8)
    sharded = build_compression(settings, CPU, torch.bfloat16, shards_weights=True).loading["quantization_config"]
    assert sharded.bnb_4bit_quant_storage == torch.bfloat16  # pieces of floats can be gathered, pieces of bytes not


def test_eetq_without_a_gpu_is_refused():
    settings = QuantizationConfig(quantization_bit=8, quantization_method="eetq")
    with pytest.raises(ModelError, match="eetq computes on NVIDIA GPUs only, and this run is on cpu"):
        build_compression(settings, CPU, torch.float32, shards_weights=False)


def test_eetq_on_a_gpu_needs_its_package(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "kernels", None)
    settings = QuantizationConfig(quantization_bit=8, quantization_method="eetq")
    with pytest.raises(MissingDependencyError, match="kernels"):
        build_compression(settings, torch.device("cuda"), torch.float16, shards_weights=False)
    monkeypatch.setattr(asked, "require", lambda *_: None)
    made = build_compression(settings, torch.device("cuda"), torch.float16, shards_weights=False)
    assert made.loading["quantization_config"].weights == "int8"


def test_eight_bit_floats_need_a_gpu_that_has_them(monkeypatch):
    pytest.importorskip("torchao")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    settings = QuantizationConfig(quantization_bit=8, quantization_method="torchao", quantization_type="fp8")
    with pytest.raises(ModelError, match=r"compute capability 8.9 or newer, and this one has 8.0"):
        build_compression(settings, torch.device("cuda"), torch.bfloat16, shards_weights=False)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "bitsandbytes", None)
    with pytest.raises(MissingDependencyError, match=r"tunesmith\[bitsandbytes\]"):
        build_compression(QuantizationConfig(quantization_bit=4), CPU, torch.float32, shards_weights=False)


def test_what_bitsandbytes_repeats_for_every_layer_is_said_once(caplog):
    pytest.importorskip("bitsandbytes")
    name = "bitsandbytes.autograd._functions"
    for _ in range(2):
        build_compression(QuantizationConfig(quantization_bit=8), CPU, torch.float32, shards_weights=False)
    logger = logging.getLogger(name)
    assert len([each for each in logger.filters if type(each).__name__ == "_OnlyFirst"]) == 1
    with caplog.at_level("WARNING"):
        for dtype in ("a", "b"):
            logger.warning("unusual words about %s for this test", dtype)
    assert caplog.text.count("unusual words") == 1


def test_weights_of_packed_entries_are_counted_one_by_one(run_config, model_folder):
    pytest.importorskip("bitsandbytes")
    compressed = run_config(model_name_or_path=str(model_folder), bf16=False, lora_rank=4, quantization_bit=4)
    exact = run_config(model_name_or_path=str(model_folder), bf16=False, lora_rank=4)
    counts = [load_model(each, load_tokenizer(each.model)).parameters.total for each in (compressed, exact)]
    assert counts[0] == counts[1]
