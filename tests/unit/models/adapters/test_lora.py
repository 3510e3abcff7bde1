"""Saved adapters go onto the model they were trained on, whole, or are refused."""

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model

from tests.tiny.models import tiny_model
from tunesmith.errors import ModelError
from tunesmith.models.adapters.lora import attach_adapter, continue_adapter, merge_adapters
from tunesmith.models.adapters.record import BaseRecord

IDS = torch.tensor([[5, 9, 200, 31, 4]])


def save_adapter(folder, *, layers=2, seed=1, **settings) -> str:
    options = {"r": 4, "target_modules": ["q_proj", "down_proj"], "task_type": "CAUSAL_LM", **settings}
    model = get_peft_model(tiny_model("llama", layers=layers), LoraConfig(**options))
    torch.manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    return str(folder)


def logits(model):
    with torch.no_grad():
        return model.eval()(IDS).logits


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_rslora": True},
        {"use_dora": True},
        {"modules_to_save": ["model.norm"]},
        {"task_type": None},
        {"target_modules": ["embed_tokens", "v_proj"]},  # the head shares its weights and must not change
        {"target_modules": ["lm_head"]},
    ],
    ids=str,
)
def test_a_saved_adapter_is_attached_whole_and_merges_to_the_same_model(settings, tmp_path):
    source = save_adapter(tmp_path, **settings)
    attached = logits(attach_adapter(tiny_model("llama"), source))
    assert not torch.allclose(attached, logits(tiny_model("llama")), atol=1e-2)
    merged = merge_adapters(tiny_model("llama"), [source])
    torch.testing.assert_close(logits(merged), attached, atol=1e-4, rtol=1e-4)


def test_only_a_continued_adapter_is_trainable(tmp_path):
    source = save_adapter(tmp_path)
    model = tiny_model("llama")
    continued = continue_adapter(model, source, BaseRecord.of(model, "toy", 420))
    trained = [name for name, p in continued.named_parameters() if p.requires_grad]
    assert len(trained) == 2 * 2 * 2
    assert not any(p.requires_grad for p in attach_adapter(tiny_model("llama"), source).parameters())


@pytest.mark.parametrize(
    ("layers", "reason"),
    [(2, r"nothing in the model takes its weight \S*layers\.2\."), (6, r"it has no weight for \S*layers\.4\.")],
)
def test_an_adapter_of_a_model_of_another_depth_is_refused(layers, reason, tmp_path):
    source = save_adapter(tmp_path, layers=4)
    with pytest.raises(ModelError, match=f"does not fit LlamaForCausalLM.*{reason}.*another base model"):
        attach_adapter(tiny_model("llama", layers=layers), source)


def test_an_adapter_whose_shapes_differ_is_refused(tmp_path):
    source = save_adapter(tmp_path)
    with pytest.raises(ModelError, match=r"does not fit LlamaForCausalLM.*: size mismatch for .*lora_A.*\[4, 32\]"):
        attach_adapter(tiny_model("llama", hidden_size=64), source)


def test_an_adapter_without_its_weights_is_refused(tmp_path):
    source = save_adapter(tmp_path)
    (tmp_path / "adapter_model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"and no adapter_model\.safetensors, so it is not the whole adapter"):
        attach_adapter(tiny_model("llama"), source)


def test_a_prompt_is_no_adapter_that_can_be_merged(tmp_path):
    prompt = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    get_peft_model(tiny_model("llama"), prompt).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"cannot be merged: of its kind \(prompt_tuning\), it learns"):
        merge_adapters(tiny_model("llama"), [str(tmp_path)])


def test_an_adapter_file_that_was_cut_off_is_named(tmp_path):
    file = tmp_path / "adapter_model.safetensors"
    source = save_adapter(tmp_path)
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ModelError, match=rf"adapter_name_or_path: {file} is damaged .*copy it again"):
        attach_adapter(tiny_model("llama"), source)
