"""Taking the head off: hidden states and transform give back the model's own logits."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from tests.tiny.models import FAMILIES, tiny_model
from tunesmith.errors import ModelError
from tunesmith.models.families import LogitTransform
from tunesmith.models.heads import HiddenStates, find_base_model, resolve_head, run_body

IDS = torch.tensor([[7, 91, 13, 400, 8, 2, 55], [9, 9, 1, 3, 77, 12, 4]])


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_head_of_hidden_states_equals_the_models_logits(family, tied):
    model = tiny_model(family, tied=tied)
    head = resolve_head(model)
    assert head.is_separable
    body = run_body(model, head, {"input_ids": IDS, "use_cache": False})
    assert body.hidden.shape == (2, 7, 32)
    assert body.output.logits.shape[1] == 1
    expected = model(input_ids=IDS, use_cache=False).logits
    torch.testing.assert_close(head.transform(head.module(body.hidden)), expected, atol=1e-6, rtol=1e-6)


def test_scale_is_applied_before_the_soft_cap():
    # 2 * 3 = 6; 4 * tanh(6 / 4) = 3.6206...
    found = LogitTransform(multiplier=2.0, softcap=4.0)(torch.tensor([3.0]))
    torch.testing.assert_close(found, torch.tensor([3.620593]))


def test_gradients_through_captured_hidden_states_equal_those_of_the_whole_model():
    model = tiny_model("gemma2")
    head = resolve_head(model)
    model(input_ids=IDS, use_cache=False).logits.square().mean().backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    hidden = run_body(model, head, {"input_ids": IDS, "use_cache": False}).hidden
    head.transform(head.module(hidden)).square().mean().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], atol=1e-6, rtol=1e-5)


def test_head_inside_peft_is_found_with_its_adapter():
    model = get_peft_model(
        tiny_model("cohere", tied=False),
        LoraConfig(r=2, target_modules=["q_proj", "lm_head"], init_lora_weights=False, lora_dropout=0.5),
    )
    head = resolve_head(model.train())
    assert head.is_separable
    assert model.training  # the probe left the mode alone, submodules too
    assert model.base_model.model.lm_head.lora_dropout["default"].training
    model.eval()
    body = run_body(model, head, {"input_ids": IDS})
    expected = model(input_ids=IDS).logits
    torch.testing.assert_close(head.transform(head.module(body.hidden)), expected, atol=1e-6, rtol=1e-6)


def test_family_that_changes_logits_behind_our_back_falls_back_to_whole_logits(caplog):
    model = tiny_model("llama")
    inner = model.forward

    def doubled(*args, logits_to_keep=0, **kwargs):
        output = inner(*args, logits_to_keep=logits_to_keep, **kwargs)
        output.logits = output.logits * 2
        return output

    model.forward = doubled
    head = resolve_head(model)
    assert not head.is_separable
    assert "away from its logits" in head.reason
    assert "more memory" in caplog.text


def test_encoder_decoder_is_not_separable():
    model = tiny_model("llama")
    model.config.is_encoder_decoder = True
    assert resolve_head(model).reason == "LlamaForCausalLM is an encoder-decoder"


def test_model_without_head_is_refused():
    with pytest.raises(ModelError, match="LlamaModel has no output head"):
        resolve_head(tiny_model("llama").model)


def test_module_that_is_no_transformers_model_is_refused():
    with pytest.raises(ModelError, match="Linear is not a transformers model"):
        find_base_model(nn.Linear(2, 2))


def test_hidden_states_before_any_run_are_a_programming_error():
    with pytest.raises(RuntimeError, match="has not been run"), HiddenStates(resolve_head(tiny_model())) as states:
        _ = states.last
