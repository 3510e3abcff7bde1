"""What is trained after the adapter settings were applied."""

import pytest
import torch
from peft import PeftModel

from tests.tiny.models import tiny_model
from tunesmith.config import AdapterConfig
from tunesmith.errors import ModelError
from tunesmith.models.adapters import apply_adapters

IDS = torch.tensor([[5, 9, 200, 31, 4]])


def adapt(model, *, adapters=(), is_trainable=True, trained_dtype=torch.float32, **settings):
    config = AdapterConfig(**settings)
    return apply_adapters(model, config, adapters, trained_dtype=trained_dtype, is_trainable=is_trainable)


def trained(model) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def saved_adapter(folder, seed: int, **settings) -> str:
    model = adapt(tiny_model("llama"), **settings).model
    torch.manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data.normal_(0, 0.2)
    model.save_pretrained(folder)
    return str(folder)


def logits(model):
    with torch.no_grad():
        return model.eval()(IDS).logits


def test_lora_trains_only_its_matrices_at_twice_the_rank():
    model = adapt(tiny_model("llama"), lora_rank=4).model
    assert isinstance(model, PeftModel)
    assert len(trained(model)) == 2 * 7 * 2
    assert all(".lora_" in name for name in trained(model))
    config = model.peft_config["default"]
    assert (config.r, config.lora_alpha, config.lora_dropout) == (4, 8, 0.0)


def test_rslora_and_dora_reach_peft():
    config = adapt(tiny_model("llama"), use_rslora=True, use_dora=True).model.peft_config["default"]
    assert (config.use_rslora, config.use_dora) == (True, True)


def test_adapters_on_a_bf16_base_are_fp32_and_learn():
    model = adapt(tiny_model("llama").to(torch.bfloat16), additional_target=("norm",)).model
    assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}
    assert {p.dtype for p in model.parameters() if not p.requires_grad} == {torch.bfloat16}
    with torch.autocast("cpu", torch.bfloat16):
        model(IDS, labels=IDS).loss.backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters() if p.requires_grad)


def test_additional_target_is_trained_whole_and_keeps_tied_weights_tied():
    model = adapt(tiny_model("llama"), lora_target=("q_proj",), additional_target=("embed_tokens",)).model
    whole = {name for name in trained(model) if "lora_" not in name}
    assert whole
    assert all("modules_to_save" in name for name in whole)
    base = model.get_base_model()
    assert base.lm_head.weight is base.model.embed_tokens.modules_to_save["default"].weight


def test_additional_target_means_whole_names_not_ends_of_words():
    model = adapt(tiny_model("llama"), lora_target=("q_proj",), additional_target=("norm",)).model
    whole = [name for name in trained(model) if "lora_" not in name]
    assert whole == ["base_model.model.model.norm.modules_to_save.default.weight"]  # and no input_layernorm


def test_additional_target_that_does_not_exist_is_refused():
    with pytest.raises(ModelError, match=r"additional_target: 'wte' matches no module.*model\.embed_tokens"):
        adapt(tiny_model("llama"), additional_target=("wte",))


def test_full_trains_everything():
    model = adapt(tiny_model("llama"), finetuning_type="full").model
    assert trained(model) == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize(("number", "layers"), [(1, {"3"}), (2, {"2", "3"}), (-1, {"0"}), (0, set())])
def test_freeze_trains_the_last_or_first_layers(number, layers):
    settings = {"freeze_trainable_layers": number, "freeze_extra_modules": ("norm",)}
    model = adapt(tiny_model("llama", layers=4), finetuning_type="freeze", **settings).model
    assert {name.split(".")[2] for name in trained(model) if ".layers." in name} == layers
    assert "model.norm.weight" in trained(model)
    assert "model.embed_tokens.weight" not in trained(model)


def test_freeze_of_modules_inside_layers():
    model = adapt(tiny_model("llama"), finetuning_type="freeze", freeze_trainable_modules=("mlp",)).model
    assert {".".join(name.split(".")[3:]) for name in trained(model)} == {
        "mlp.gate_proj.weight",
        "mlp.up_proj.weight",
        "mlp.down_proj.weight",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"freeze_trainable_layers": 3}, "has 2 layers. Give a number from -2 to 2"),
        ({"freeze_trainable_modules": ("ffn",)}, "freeze_trainable_modules: ffn matches nothing.*mlp"),
        ({"freeze_extra_modules": ("wte",)}, "freeze_extra_modules: 'wte' matches no module"),
        ({"freeze_trainable_layers": 0}, "nothing is left to train"),
    ],
)
def test_freeze_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ModelError, match=message):
        adapt(tiny_model("llama"), finetuning_type="freeze", **settings)


def test_last_adapter_is_continued_and_earlier_ones_are_merged(tmp_path):
    first, second = saved_adapter(tmp_path / "a", 1), saved_adapter(tmp_path / "b", 2, lora_rank=3)
    plain = logits(tiny_model("llama"))
    both = logits(adapt(tiny_model("llama"), adapters=[first, second], is_trainable=False).model)
    result = adapt(tiny_model("llama"), adapters=[first, second])
    assert result.model.peft_config["default"].r == 3
    assert trained(result.model)
    torch.testing.assert_close(logits(result.model), both, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(plain, both, atol=1e-2)
    assert any("goes on with the adapter" in note for note in result.notes)


def test_create_new_adapter_merges_all_and_starts_afresh(tmp_path):
    first = saved_adapter(tmp_path / "a", 1)
    merged = logits(adapt(tiny_model("llama"), adapters=[first], is_trainable=False).model)
    model = adapt(tiny_model("llama"), adapters=[first], create_new_adapter=True, lora_rank=5).model
    assert model.peft_config["default"].r == 5
    torch.testing.assert_close(logits(model), merged, atol=1e-4, rtol=1e-4)  # a new adapter changes nothing yet


def test_model_that_is_only_run_is_plain_and_untrainable(tmp_path):
    model = adapt(tiny_model("llama"), adapters=[saved_adapter(tmp_path / "a", 1)], is_trainable=False).model
    assert not isinstance(model, PeftModel)
    assert not trained(model)
    assert not model.training
    assert not any("lora" in name for name, _ in model.named_parameters())


def test_adapter_of_another_model_is_refused(tmp_path):
    path = saved_adapter(tmp_path / "a", 1)
    with pytest.raises(ModelError, match=r"does not fit LlamaForCausalLM.*another base model"):
        adapt(tiny_model("llama", hidden_size=64), adapters=[path])
