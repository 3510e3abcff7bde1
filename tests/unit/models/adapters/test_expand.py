"""New blocks change nothing, stand evenly, and make a model that loads as it was saved."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.tiny.models import FAMILIES, tiny_model
from tunesmith.config import AdapterConfig
from tunesmith.errors import ModelError
from tunesmith.models.adapters import apply_adapters
from tunesmith.models.adapters.expand import expand_blocks

IDS = torch.tensor([[5, 9, 200, 31, 4]])


def logits(model):
    with torch.no_grad():
        return model.eval()(IDS, use_cache=False).logits


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "cohere"])
def test_new_blocks_change_no_answer_and_load_as_saved(family, tmp_path):
    model = tiny_model(family, layers=4)
    before = logits(model)
    note = expand_blocks(model, 2)
    assert note == "2 new blocks, one after every 2 layers: 4 layers became 6"
    torch.testing.assert_close(logits(model), before, atol=1e-5, rtol=1e-5)
    assert model.config.get_text_config().num_hidden_layers == 6
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(logits(AutoModelForCausalLM.from_pretrained(tmp_path)), before, atol=1e-5, rtol=1e-5)


def test_answers_with_a_cache_stay_the_same_too():
    model = tiny_model("llama", layers=2)
    ask = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    before = model.generate(IDS, **ask)
    expand_blocks(model, 1)
    assert torch.equal(model.generate(IDS, **ask), before)


def test_a_new_block_is_a_copy_that_writes_nothing():
    model = tiny_model("llama", layers=4)
    expand_blocks(model, 2)
    old, new = model.model.layers[1], model.model.layers[2]
    assert torch.equal(old.self_attn.q_proj.weight, new.self_attn.q_proj.weight)
    assert not new.self_attn.o_proj.weight.any()
    assert not new.mlp.down_proj.weight.any()
    assert [layer.self_attn.layer_idx for layer in model.model.layers] == [0, 1, 2, 3, 4, 5]


def pro(model, **settings):
    config = AdapterConfig(finetuning_type="freeze", use_llama_pro=True, **settings)
    return apply_adapters(model, config, (), trained_dtype=torch.float32, is_trainable=True)


@pytest.mark.parametrize(("new", "layers"), [(0, {"1", "3"}), (2, {"2", "5"})])
def test_blocks_spread_evenly_are_trained(new, layers):
    result = pro(tiny_model("llama", layers=4), llama_pro_new_blocks=new, freeze_trainable_layers=2)
    trained = [name for name, value in result.model.named_parameters() if value.requires_grad]
    assert {name.split(".")[2] for name in trained} == layers
    assert any("LLaMA Pro trains the layers" in note for note in result.notes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"llama_pro_new_blocks": 3, "freeze_trainable_layers": 3},
            "llama_pro_new_blocks: 3 blocks of LLaMA Pro cannot be.*1, 2, 4",
        ),
        ({"freeze_trainable_layers": 3}, "freeze_trainable_layers: 3 blocks of LLaMA Pro.*one of 1, 2, 4"),
    ],
)
def test_numbers_that_do_not_divide_are_refused(settings, message):
    with pytest.raises(ModelError, match=message):
        pro(tiny_model("llama", layers=4), **settings)
