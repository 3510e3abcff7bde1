"""From settings to a model, from every kind of place."""

import shutil

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import T5Config
from transformers.models.auto import CONFIG_MAPPING

from tests.tiny.models import tiny_model
from tests.tiny.runs import write_model
from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.errors import ModelError
from tunesmith.models import LoadedModel, load_base_config, load_model, load_tokenizer, resolve_attention
from tunesmith.models.segments import SEGMENTS

IDS = torch.tensor([[5, 9, 200, 31, 4]])


def load(config, **options) -> LoadedModel:
    return load_model(config, load_tokenizer(config.model), **options)


def logits(model):
    with torch.no_grad():
        return model.eval()(IDS).logits


def test_lora_on_a_folder_is_ready_to_train(run_config, model_folder):
    loaded = load(run_config(model_name_or_path=str(model_folder), lora_target="q_proj"), layout="flat")
    assert isinstance(loaded.model, PeftModel)
    assert loaded.model.training
    base = loaded.model.get_base_model()
    assert base.config._attn_implementation == loaded.attention.implementation == SEGMENTS
    assert base.config.use_cache is False
    assert loaded.parameters.trainable == 2 * (8 * 32 + 32 * 8)
    assert not loaded.gradient_checkpointing
    assert loaded.memory.total > loaded.parameters.total * 4
    assert any(note.startswith("gradient checkpointing off: ") for note in loaded.notes)
    assert loaded.model.peft_config["default"].base_model_name_or_path == str(model_folder)
    torch.testing.assert_close(logits(loaded.model), logits(tiny_model("llama")), atol=1e-5, rtol=1e-5)


def test_a_model_to_train_gets_lean_layers_and_one_to_run_keeps_its_own(run_config, model_folder):
    config = run_config(model_name_or_path=str(model_folder))
    kinds = {type(module).__name__ for module in load(config).model.modules()}
    assert {"LeanLoraLinear", "LeanLlamaMLP", "LeanLlamaRMSNorm"} <= kinds
    kinds = {type(module).__name__ for module in load(config, is_trainable=False).model.modules()}
    assert not any(kind.startswith("Lean") for kind in kinds)


def test_lean_layers_are_named_in_the_plan_and_can_be_switched_off(run_config, model_folder):
    loaded = load(run_config(model_name_or_path=str(model_folder)))
    assert "lean layers: 14 LoRA, 2 feed-forward, 5 norm (lean_layers: false for the library's own)" in loaded.notes
    loaded = load(run_config(model_name_or_path=str(model_folder), lean_layers=False))
    assert not any(type(module).__name__.startswith("Lean") for module in loaded.model.modules())
    assert not any(note.startswith("lean") for note in loaded.notes)


def test_gguf_file_and_folder_are_models(run_config, write_gguf):
    path, original = write_gguf(weights=True)
    for source in (path, path.parent):
        loaded = load(run_config(model_name_or_path=str(source)), layout="flat")
        torch.testing.assert_close(logits(loaded.model), logits(original), atol=1e-5, rtol=1e-5)
        assert loaded.model.peft_config["default"].base_model_name_or_path == str(path)
        assert loaded.stored_dtype is None


def test_model_that_is_only_run_has_no_gradients_and_a_cache(run_config, model_folder, caplog):
    caplog.set_level("INFO", logger="tunesmith")
    loaded = load(run_config(model_name_or_path=str(model_folder)), is_trainable=False)
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert not loaded.model.training
    assert loaded.model.config.use_cache is True
    assert (loaded.memory, loaded.stored_dtype) == (None, torch.float32)
    assert "trainable" not in caplog.text  # nobody who chats asks for it


def test_adapter_folder_brings_its_base_and_the_users_base_wins(run_config, model_folder, tmp_path):
    adapter, other = tmp_path / "adapter", tmp_path / "other"
    trained = load(run_config(model_name_or_path=str(model_folder))).model
    for parameter in trained.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.2, generator=torch.Generator().manual_seed(5))
    trained.save_pretrained(adapter)
    expected = logits(trained)
    named = load(run_config(model_name_or_path=str(adapter)), is_trainable=False).model
    torch.testing.assert_close(logits(named), expected, atol=1e-4, rtol=1e-4)
    model_folder.rename(other)  # what the adapter remembers is gone; what the user says counts
    config = run_config(model_name_or_path=str(other), adapter_name_or_path=str(adapter))
    torch.testing.assert_close(logits(load(config, is_trainable=False).model), expected, atol=1e-4, rtol=1e-4)
    continued = load(config).model
    assert isinstance(continued, PeftModel)
    torch.testing.assert_close(logits(continued), expected, atol=1e-4, rtol=1e-4)


def test_bf16_base_gets_fp32_adapters_and_is_checked_under_autocast(run_config, model_folder):
    config = run_config(model_name_or_path=str(model_folder), bf16=True, additional_target="norm")
    loaded = load(config, layout="flat")
    types = {name: parameter.dtype for name, parameter in loaded.model.named_parameters()}
    assert {dtype for name, dtype in types.items() if "lora_" in name or "modules_to_save" in name} == {torch.float32}
    frozen = {dtype for name, dtype in types.items() if not ("lora_" in name or "modules_to_save" in name)}
    assert frozen == {torch.bfloat16}


def test_freeze_keeps_the_stored_precision_of_what_it_trains(run_config, model_folder):
    config = run_config(model_name_or_path=str(model_folder), bf16=True, finetuning_type="freeze")
    loaded = load(config, layout="flat")
    original = dict(tiny_model("llama").named_parameters())
    for name, parameter in loaded.model.named_parameters():
        if parameter.requires_grad:
            assert torch.equal(parameter, original[name])  # not rounded to bf16 on the way
        else:
            assert parameter.dtype == torch.bfloat16


def test_from_scratch_keeps_the_shape_and_not_the_weights(run_config, model_folder):
    config = run_config(model_name_or_path=str(model_folder), train_from_scratch=True, finetuning_type="full")
    loaded = load(config)
    assert loaded.parameters.trainable == loaded.parameters.total == tiny_model("llama").num_parameters()
    assert not torch.allclose(logits(loaded.model), logits(tiny_model("llama")), atol=1e-2)


def test_rope_scaling_reaches_the_model_and_the_plan(run_config, model_folder):
    config = run_config(model_name_or_path=str(model_folder), rope_scaling="yarn", cutoff_len=1024)
    loaded = load(config)
    assert loaded.model.config.rope_parameters["rope_type"] == "yarn"
    assert "rope_scaling: yarn, 512 -> 1024 tokens (factor 2)" in loaded.notes


def test_asked_for_checkpointing_is_switched_on(run_config, model_folder):
    loaded = load(run_config(model_name_or_path=str(model_folder), gradient_checkpointing=True))
    assert loaded.gradient_checkpointing
    layer = loaded.model.get_base_model().model.layers[0]
    assert layer.gradient_checkpointing


def test_parameter_status_is_logged_when_asked_for(run_config, model_folder, caplog):
    caplog.set_level("INFO", logger="tunesmith")
    load(run_config(model_name_or_path=str(model_folder), print_param_status=True))
    assert "model.norm.weight (32,) float32 cpu frozen" in caplog.text
    assert "trainable " in caplog.text


def test_missing_weights_are_refused_instead_of_random(run_config, model_folder):
    file = model_folder / "model.safetensors"
    weights = load_file(file)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 of the model's weights.*up_proj.*train_from_scratch"):
        load(run_config(model_name_or_path=str(model_folder)))


def test_folder_without_weights_is_refused(run_config, model_folder):
    (model_folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="cannot be loaded as a causal language model"):
        load(run_config(model_name_or_path=str(model_folder)))


def test_tokenizer_larger_than_the_embeddings_is_refused(run_config, model_folder):
    tokenizer = byte_level_tokenizer()
    tokenizer.add_tokens([f"new{index}" for index in range(40)])
    with pytest.raises(ModelError, match=r"tokenizer has 4\d\d tokens, but the model has embeddings for 420"):
        load_model(run_config(model_name_or_path=str(model_folder)), tokenizer)


def test_encoder_decoder_is_refused(run_config, model_folder):
    shutil.rmtree(model_folder)  # the folder's Llama is replaced by a T5
    T5Config(d_model=32, d_ff=64, num_layers=1, num_heads=2).save_pretrained(model_folder)
    with pytest.raises(ModelError, match="cannot be loaded as a causal language model"):
        load_model(run_config(model_name_or_path=str(model_folder)), byte_level_tokenizer())


def test_the_family_of_a_model_is_known_before_its_weights_are_loaded(run_config, tmp_path):
    folder = tmp_path / "recurrent"
    CONFIG_MAPPING["qwen3_next"](num_hidden_layers=4).save_pretrained(folder)  # a configuration and nothing else
    config = load_base_config(run_config(model_name_or_path=str(folder)))
    choice = resolve_attention("auto", "cpu", config)
    assert not choice.supports_flat
    assert "linear_attention" in choice.reason


def test_the_family_of_an_adapter_is_that_of_its_base(run_config, model_folder, tmp_path):
    load(run_config(model_name_or_path=str(model_folder))).model.save_pretrained(tmp_path / "adapter")
    config = load_base_config(run_config(model_name_or_path=str(tmp_path / "adapter")))
    assert (config.model_type, config.vocab_size) == ("llama", 420)
    assert resolve_attention("auto", "cpu", config).supports_flat


def test_the_family_of_a_gguf_file_is_read_from_it(run_config, write_gguf):
    config = load_base_config(run_config(model_name_or_path=str(write_gguf(weights=True)[0])))
    assert (config.model_type, config.num_hidden_layers) == ("llama", 2)


@pytest.mark.parametrize("kept_bytes", [0, 5, 2000, -10])
def test_a_weight_file_that_was_cut_off_is_named(kept_bytes, run_config, tmp_path):
    write_model(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept_bytes])
    with pytest.raises(ModelError, match=rf"model_name_or_path: {file} is damaged .*copy it again"):
        load(run_config(model_name_or_path=str(tmp_path)))


def test_the_one_damaged_file_of_several_is_named(run_config, tmp_path):
    tiny_model("llama").save_pretrained(tmp_path, max_shard_size="20KB")
    byte_level_tokenizer().save_pretrained(tmp_path)
    file = sorted(tmp_path.glob("*.safetensors"))[1]
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ModelError, match=rf"{file} is damaged"):
        load(run_config(model_name_or_path=str(tmp_path)), is_trainable=False)


def test_an_adapter_that_goes_on_on_another_base_is_saved_as_one_of_it(run_config, model_folder, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    load(run_config(model_name_or_path=str(model_folder))).model.save_pretrained(first)
    other = shutil.copytree(model_folder, tmp_path / "other-llama")
    loaded = load(run_config(model_name_or_path=str(other), adapter_name_or_path=[str(first)]))
    assert not any("was trained" in note for note in loaded.notes)  # another name, but the same weights
    loaded.model.save_pretrained(second)
    assert load(run_config(model_name_or_path=str(second))).model.get_base_model().name_or_path == str(other)


def test_a_base_that_only_lies_elsewhere_is_no_other(run_config, model_folder, tmp_path):
    load(run_config(model_name_or_path=str(model_folder))).model.save_pretrained(tmp_path / "adapter")
    moved = shutil.copytree(model_folder, tmp_path / "elsewhere" / model_folder.name)
    config = run_config(model_name_or_path=str(moved), adapter_name_or_path=[str(tmp_path / "adapter")])
    for is_trainable in (True, False):
        assert not any("was trained on" in note for note in load(config, is_trainable=is_trainable).notes)
