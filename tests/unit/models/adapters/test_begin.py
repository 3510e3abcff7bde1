"""First weights leave the model's answers as they were, and are taken out by one subtraction."""

import pytest
import torch

from tests.tiny.models import tiny_model
from tunesmith.config import AdapterConfig
from tunesmith.errors import ModelError
from tunesmith.models.adapters import apply_adapters
from tunesmith.models.adapters.begin import compute_first_weights, needs_first_weights

IDS = torch.tensor([[5, 9, 200, 31, 4, 77, 18, 300]])
BATCH = {"input_ids": IDS, "labels": IDS}


def new_adapter(dtype=torch.float32, **settings):
    config = AdapterConfig(lora_rank=4, **settings)
    model = tiny_model("llama").to(dtype)
    torch.manual_seed(1)
    return config, apply_adapters(model, config, (), trained_dtype=torch.float32, is_trainable=True).model


def begin(dtype=torch.float32, **settings):
    config, model = new_adapter(dtype, **settings)
    measure = lambda batch: model(**batch, use_cache=False).loss  # noqa: E731 - named as the argument
    compute_first_weights(model, config, [BATCH, BATCH], measure)
    return model


def logits(model):
    with torch.no_grad():
        return model.eval()(IDS, use_cache=False).logits


@pytest.mark.parametrize("name", ["pissa", "olora", "eva", "lora_ga"])
def test_a_model_answers_as_before_and_its_factors_are_not_those_of_chance(name):
    _, plain = new_adapter()
    model = begin(init_lora_weights=name)
    torch.testing.assert_close(logits(model), logits(tiny_model("llama")), atol=1e-4, rtol=1e-4)
    down = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight"
    assert not torch.allclose(model.state_dict()[down], plain.state_dict()[down])


def test_pissa_begins_with_the_strongest_directions():
    model = begin(init_lora_weights="pissa", pissa_iter=-1)
    weight = tiny_model("llama").model.layers[0].mlp.up_proj.weight
    layer = model.get_base_model().model.layers[0].mlp.up_proj
    own = layer.scaling["default"] * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    left, values, right = torch.linalg.svd(weight)
    best = left[:, :4] @ torch.diag(values[:4]) @ right[:4]
    torch.testing.assert_close(own, best, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(layer.base_layer.weight, weight - best, atol=1e-4, rtol=1e-4)


def test_eva_begins_with_the_directions_of_the_inputs():
    model = begin(init_lora_weights="eva")
    found = []
    layer = model.get_base_model().model.layers[0].self_attn.q_proj
    handle = layer.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0].detach()))
    logits(model)
    handle.remove()
    inputs = found[0][0]
    directions = torch.linalg.svd(inputs - inputs.mean(dim=0), full_matrices=False).Vh[:4]
    own = layer.lora_A["default"].weight
    cosines = torch.nn.functional.cosine_similarity(own, directions, dim=1).abs()
    assert (cosines > 0.99).all()
    assert not layer.lora_B["default"].weight.any()


def test_frozen_weights_keep_their_type_and_need_no_gradient():
    model = begin(torch.bfloat16, init_lora_weights="lora_ga")
    frozen = [value for value in model.parameters() if not value.requires_grad]
    assert {value.dtype for value in frozen} == {torch.bfloat16}
    assert all(value.grad is None for value in model.parameters())
    assert {value.dtype for value in model.parameters() if value.requires_grad} == {torch.float32}


@pytest.mark.parametrize(
    ("name", "expected"), [("default", False), ("gaussian", False), ("pissa", True), ("eva", True)]
)
def test_only_some_ways_compute_something(name, expected):
    assert needs_first_weights(new_adapter(init_lora_weights=name)[1]) is expected


def test_a_continued_adapter_has_its_weights(tmp_path):
    begin(init_lora_weights="pissa").save_pretrained(tmp_path)
    config = AdapterConfig(init_lora_weights="pissa")
    model = apply_adapters(
        tiny_model("llama"), config, [str(tmp_path)], trained_dtype=torch.float32, is_trainable=True
    ).model
    assert not needs_first_weights(model)
    assert model.peft_config["default"].r == 8


def test_adapters_on_embeddings_cannot_begin_elsewhere():
    with pytest.raises(ModelError, match=r"pissa is for linear layers, and \S*embed_tokens is none"):
        begin(init_lora_weights="pissa", lora_target=("q_proj", "embed_tokens"))


def test_the_checkpoint_of_another_model_is_refused(tmp_path):
    begin(init_lora_weights="pissa").save_pretrained(tmp_path)
    config = AdapterConfig(lora_rank=4, init_lora_weights="pissa")
    wider = tiny_model("llama", hidden_size=64)
    model = apply_adapters(wider, config, (), trained_dtype=torch.float32, is_trainable=True).model
    with pytest.raises(ModelError, match="the adapter of the checkpoint was made for another model"):
        model.load_adapter(str(tmp_path), "default", is_trainable=True)


@pytest.mark.parametrize(
    ("name", "limit"), [("pissa", 16), ("olora", 16), ("eva", 32), ("lora_ga", 8), ("loftq", 16)], ids=str
)
def test_more_ranks_than_directions_are_refused_with_the_number_there_is(name, limit):
    # Keys and values of the toy model: 32 inputs, 16 outputs. LoRA-GA begins A and B with different directions.
    settings = {"init_lora_weights": name, "lora_target": ("k_proj",)}
    model = apply_adapters(
        tiny_model(), AdapterConfig(lora_rank=limit + 1, **settings), (), trained_dtype=torch.float32, is_trainable=True
    ).model
    with pytest.raises(ModelError, match=rf"lora_rank: {limit + 1} on k_proj, .* has {limit} directions there"):
        compute_first_weights(model, AdapterConfig(**settings), [BATCH], lambda batch: torch.zeros(()))


@pytest.mark.parametrize(("name", "limit"), [("pissa", 16), ("olora", 16), ("lora_ga", 8)])
def test_as_many_ranks_as_directions_are_taken(name, limit):
    settings = {"init_lora_weights": name, "lora_target": ("k_proj",)}
    config = AdapterConfig(lora_rank=limit, **settings)
    model = apply_adapters(tiny_model(), config, (), trained_dtype=torch.float32, is_trainable=True).model
    compute_first_weights(model, config, [BATCH], lambda batch: model(**batch, use_cache=False).loss)
    shapes = {tuple(value.shape) for key, value in model.named_parameters() if "lora_A" in key}
    assert shapes == {(limit, 32)}
    torch.testing.assert_close(logits(model), logits(tiny_model("llama")), atol=1e-4, rtol=1e-4)
