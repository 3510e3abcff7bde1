"""Choosing an attention, and refusing one that lets samples see each other."""

import pytest
import torch

from tests.tiny.models import tiny_model
from tunesmith.errors import ModelError
from tunesmith.models import attention
from tunesmith.models.attention import check_isolation, resolve_attention
from tunesmith.models.segments import SEGMENTS


def test_auto_on_cpu_attends_per_sample_and_takes_flat_rows():
    choice = resolve_attention("auto", "cpu")
    assert (choice.implementation, choice.supports_flat) == (SEGMENTS, True)


@pytest.mark.parametrize(("setting", "expected"), [("disabled", "eager"), ("eager", "eager"), ("sdpa", "sdpa")])
def test_dense_attention_is_honoured_and_gets_no_flat_rows(setting, expected):
    choice = resolve_attention(setting, "cpu")
    assert (choice.implementation, choice.supports_flat) == (expected, False)
    assert setting in choice.reason


@pytest.mark.parametrize("setting", ["fa2", "fa3"])
def test_flash_attention_on_cpu_is_refused_with_a_way_out(setting):
    with pytest.raises(ModelError, match=f"flash_attn: {setting} runs on NVIDIA GPUs only.*Set flash_attn: auto"):
        resolve_attention(setting, "cpu")


def test_flash_attention_that_is_not_installed_is_refused(monkeypatch):
    monkeypatch.setattr(attention, "is_flash_attn_2_available", lambda: False)
    with pytest.raises(ModelError, match="fa2 needs the package flash-attn, which is not installed"):
        resolve_attention("fa2", "cuda")


def test_flex_on_cpu_is_refused_since_it_has_no_backward_pass():
    with pytest.raises(ModelError, match="flex has no backward pass on CPU"):
        resolve_attention("flex", "cpu")


def test_models_with_recurrent_layers_get_no_flat_rows():
    config = tiny_model("qwen3").config
    config.layer_types = ["linear_attention", "full_attention"]
    choice = resolve_attention("auto", "cpu", config)
    assert not choice.supports_flat
    assert "linear_attention" in choice.reason


@pytest.mark.parametrize("layout", ["flat", "padded"])
@pytest.mark.parametrize("implementation", [SEGMENTS, "sdpa", "eager"])
def test_isolating_attention_passes_the_check_and_the_model_is_left_alone(implementation, layout):
    model = tiny_model("llama").train()
    model.set_attn_implementation(implementation)
    check_isolation(model, layout)
    assert model.training


def test_attention_that_mixes_samples_is_refused():
    model = tiny_model("llama")
    model.set_attn_implementation("sdpa")
    inner = model.forward

    def with_mask_of_ones(input_ids, **kwargs):  # makes transformers forget that the row is packed
        return inner(input_ids=input_ids, attention_mask=torch.ones_like(input_ids), **kwargs)

    model.forward = with_mask_of_ones
    with pytest.raises(ModelError, match=r"'sdpa' packed samples of LlamaForCausalLM see each other.*packing: false"):
        check_isolation(model, "padded")
