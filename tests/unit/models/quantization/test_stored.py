"""Checkpoints that hold compressed weights: what is known of them, and a real one of bitsandbytes."""

import json

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig

from tests.tiny.models import tiny_model
from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.config import load_config
from tunesmith.errors import MissingDependencyError, ModelError
from tunesmith.models import load_model, load_tokenizer
from tunesmith.models.locations import ModelLocation
from tunesmith.models.precision import Precision
from tunesmith.models.quantization import resolve_quantization, stored
from tunesmith.models.quantization.stored import check_readable, find_stored_quantization

IDS = torch.arange(3, 40)[None]


def mark(folder, **settings):
    """Say in a model's configuration that its weights are compressed."""
    file = folder / "config.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "quantization_config": settings}))
    return folder


@pytest.fixture
def four_bit_folder(tmp_path):
    """A toy model stored in bitsandbytes' 4 bits, with its tokenizer."""
    pytest.importorskip("bitsandbytes")
    exact, folder = tmp_path / "exact", tmp_path / "toy-bnb-4bit"
    tiny_model().save_pretrained(exact)
    settings = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    model = AutoModelForCausalLM.from_pretrained(
        exact, quantization_config=settings, dtype=torch.float32, device_map={"": "cpu"}
    )
    model.save_pretrained(folder)
    byte_level_tokenizer(chat_template="{{ messages }}").save_pretrained(folder)
    return folder


def load(config, **options):
    return load_model(config, load_tokenizer(config.model), **options)


@pytest.mark.parametrize(
    ("settings", "title"),
    [
        ({"quant_method": "gptq", "bits": 4}, "4-bit GPTQ"),
        ({"quant_method": "awq", "bits": 4}, "4-bit AWQ"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "4-bit bitsandbytes"),
        ({"load_in_8bit": True}, "8-bit bitsandbytes"),
        ({"quant_method": "mxfp4"}, "MXFP4"),
        ({"quant_method": "compressed-tensors"}, "compressed-tensors"),
        ({"quant_method": "spqr", "bits": 3}, "3-bit spqr"),
    ],
)
def test_the_kind_is_read_from_the_configuration(settings, title):
    assert find_stored_quantization(LlamaConfig(quantization_config=settings)).title == title


def test_exact_weights_have_no_kind():
    assert find_stored_quantization(LlamaConfig()) is None


def test_a_missing_library_is_named():
    stored = find_stored_quantization(LlamaConfig(quantization_config={"quant_method": "aqlm"}))
    with pytest.raises(MissingDependencyError, match="stored as AQLM, which needs the package aqlm"):
        check_readable(stored)


@pytest.mark.parametrize(
    ("settings", "method"),
    [({"quant_method": "modelopt"}, "modelopt"), ({"quant_method": ["a"]}, r"\['a'\]"), ({"bits": 4}, "None")],
)
def test_a_way_of_storing_that_is_not_known_is_refused(run_config, model_folder, settings, method):
    mark(model_folder, **settings)
    with pytest.raises(ModelError, match=f"stored as quant_method: {method}, which the installed transformers cannot"):
        load(run_config(model_name_or_path=str(model_folder)))


def test_full_tuning_of_compressed_weights_is_refused(run_config, model_folder):
    mark(model_folder, quant_method="gptq", bits=4)
    config = run_config(model_name_or_path=str(model_folder), finetuning_type="full")
    with pytest.raises(ModelError, match="finetuning_type: full would train weights that are stored as 4-bit GPTQ"):
        load(config)


def test_a_method_that_computes_with_the_weights_themselves_is_refused_beside_compressed_ones(run_config, model_folder):
    mark(model_folder, quant_method="bitsandbytes", load_in_4bit=True)
    config = run_config(model_name_or_path=str(model_folder), finetuning_type="lokr")
    with pytest.raises(ModelError, match="lokr computes with the frozen weights themselves, and these are stored as 4"):
        load(config)


def test_compressing_twice_is_refused(run_config, model_folder):
    mark(model_folder, quant_method="gptq", bits=4)
    with pytest.raises(ModelError, match="stored as 4-bit GPTQ already"):
        load(run_config(model_name_or_path=str(model_folder), quantization_bit=4))


def test_a_merge_into_weights_that_cannot_be_read_back_names_the_exact_model(model_folder):
    folder = model_folder.rename(model_folder.with_name("toy-llama-GPTQ-Int4"))
    mark(folder, quant_method="gptq", bits=4)
    config = load_config({"model_name_or_path": str(folder), "use_cpu": True}, purpose="generate", environ={})
    with pytest.raises(ModelError) as caught:
        load(config, is_trainable=False, needs_exact=True)
    assert "adapters cannot be merged into" in str(caught.value)
    assert str(caught.value).endswith(f"which seems to be: model_name_or_path={folder.with_name('toy-llama')}")


def test_a_stored_four_bit_model_trains_an_adapter_and_announces_the_merge(run_config, four_bit_folder):
    loaded = load(run_config(model_name_or_path=str(four_bit_folder), bf16=False), layout="flat")
    assert type(loaded.model.get_base_model().model.layers[0].mlp.up_proj.base_layer).__name__ == "Linear4bit"
    assert (
        "the weights are stored as 4-bit bitsandbytes; export reads them back and merges the adapter into the result"
        in loaded.notes
    )


def test_a_stored_four_bit_model_is_not_repacked_by_an_evaluation(run_config, four_bit_folder, monkeypatch):
    import bitsandbytes

    monkeypatch.setattr(bitsandbytes.nn.modules, "has_avx512bf16", lambda: True)
    config = run_config(model_name_or_path=str(four_bit_folder), bf16=False, infer_dtype="float32")
    layer = load(config, is_trainable=False).model.model.layers[0].mlp.up_proj
    assert not layer.support_avx512bf16_for_cpu


def test_a_stored_four_bit_model_is_read_back_for_a_merge(run_config, four_bit_folder):
    config = run_config(model_name_or_path=str(four_bit_folder), bf16=False, infer_dtype="float32")
    compressed = load(config, is_trainable=False)
    exact = load(config, is_trainable=False, needs_exact=True)
    assert compressed.quantization.is_compressed
    assert not exact.quantization.is_compressed
    assert type(exact.model.model.layers[0].mlp.up_proj) is torch.nn.Linear
    with torch.no_grad():
        torch.testing.assert_close(
            exact.model(input_ids=IDS).logits, compressed.model(input_ids=IDS).logits, atol=1e-3, rtol=1e-3
        )


def test_weights_that_are_read_back_wrongly_are_refused(run_config, four_bit_folder, monkeypatch):
    config = run_config(model_name_or_path=str(four_bit_folder), bf16=False)
    from transformers import PreTrainedModel

    right = PreTrainedModel.dequantize

    def scrambled(self, dtype=None):
        model = right(self, dtype=dtype)
        for layer in model.model.layers:
            layer.mlp.up_proj.weight.data = layer.mlp.up_proj.weight.data.flip(0)
        return model

    monkeypatch.setattr(PreTrainedModel, "dequantize", scrambled)
    with pytest.raises(ModelError, match="reading the quantised weights back changes the model's logits by"):
        load(config, is_trainable=False, needs_exact=True)


def test_a_kind_without_gradients_is_refused(run_config, four_bit_folder, monkeypatch):
    from transformers.quantizers.quantizer_bnb_4bit import Bnb4BitHfQuantizer

    monkeypatch.setattr(Bnb4BitHfQuantizer, "is_trainable", False)
    with pytest.raises(ModelError, match="can be run, and nothing can be trained beside them"):
        load(run_config(model_name_or_path=str(four_bit_folder)))


def test_a_compressed_model_that_is_run_keeps_its_adapter_beside_it(run_config, model_folder, tmp_path):
    pytest.importorskip("bitsandbytes")
    adapter = tmp_path / "adapter"
    wrapped = get_peft_model(tiny_model(), LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False))
    wrapped.save_pretrained(adapter)
    config = load_config(
        {
            "model_name_or_path": str(model_folder),
            "adapter_name_or_path": str(adapter),
            "quantization_bit": 4,
            "infer_dtype": "float32",
            "use_cpu": True,
        },
        purpose="generate",
        environ={},
    )
    loaded = load(config, is_trainable=False)
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    with torch.no_grad():
        found = loaded.model(input_ids=IDS).logits
        with loaded.model.disable_adapter():
            assert (loaded.model(input_ids=IDS).logits - found).abs().max() > 0.01


def test_adapters_are_not_merged_into_compressed_weights(run_config, model_folder, tmp_path):
    pytest.importorskip("bitsandbytes")
    for name in ("a", "b"):
        get_peft_model(tiny_model(), LoraConfig(r=4, target_modules=["q_proj"])).save_pretrained(tmp_path / name)
    config = run_config(
        model_name_or_path=str(model_folder),
        adapter_name_or_path=[str(tmp_path / "a"), str(tmp_path / "b")],
        quantization_bit=4,
    )
    with pytest.raises(ModelError, match="cannot be merged into quantised weights"):
        load(config)


def test_a_gguf_file_is_not_compressed_again(run_config, write_gguf):
    path, _ = write_gguf(weights=True)
    with pytest.raises(ModelError, match="the weights of a GGUF file are compressed already"):
        load(run_config(model_name_or_path=str(path), quantization_bit=4))


@pytest.mark.parametrize(("method", "title"), [("mxfp4", "MXFP4"), ("fp8", "FP8")])
@pytest.mark.parametrize("needs_exact", [False, True])
def test_kinds_that_are_made_exact_while_loading_can_do_everything(run_config, method, title, needs_exact):
    made = resolve_quantization(
        run_config(finetuning_type="full"),
        LlamaConfig(quantization_config={"quant_method": method}),
        ModelLocation("hub", "org/model", None),
        torch.device("cpu"),
        Precision(torch.float32, torch.float32, None, ""),
        is_trainable=not needs_exact,
        needs_exact=needs_exact,
    )
    assert not made.is_compressed
    assert made.loading["quantization_config"].dequantize is True
    assert made.loading["device_map"] == {"": torch.device("cpu")}
    assert made.note == f"the weights are stored as {title} and made ordinary numbers while loading"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("org/Model-GPTQ", "the 16-bit model, which seems to be: model_name_or_path=org/Model"),
        ("org/unknown", "export with the 16-bit model that they were made from: model_name_or_path=THAT_MODEL"),
    ],
)
def test_a_merge_that_will_not_be_possible_is_announced(run_config, monkeypatch, name, words):
    monkeypatch.setattr(stored, "find_spec", lambda module: True)
    made = resolve_quantization(
        run_config(),
        LlamaConfig(quantization_config={"quant_method": "gptq", "bits": 4}),
        ModelLocation("hub", name, None),
        torch.device("cpu"),
        Precision(torch.float32, torch.float32, None, ""),
        is_trainable=True,
    )
    assert made.is_compressed
    assert made.note.startswith("the weights are stored as 4-bit GPTQ: the adapter cannot be merged into them later.")
    assert words in made.note


def test_a_compressed_model_that_is_only_run_says_what_it_is(run_config, monkeypatch):
    monkeypatch.setattr(stored, "find_spec", lambda module: True)
    made = resolve_quantization(
        run_config(),
        LlamaConfig(quantization_config={"quant_method": "awq", "bits": 4}),
        ModelLocation("hub", "org/model", None),
        torch.device("cpu"),
        Precision(torch.float32, torch.float32, None, ""),
        is_trainable=False,
    )
    assert made.note == "the weights are stored as 4-bit AWQ"
