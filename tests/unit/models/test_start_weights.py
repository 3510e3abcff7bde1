import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from tests.tiny.models import tiny_model
from tunesmith.models.start_weights import StartWeights

IDS = torch.tensor([[5, 9, 200, 31, 4]])


def step(model):
    """Move every trained weight."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.1)


def logits(model):
    return model(input_ids=IDS, use_cache=False).logits


@pytest.fixture(params=["full", "lora"])
def model(request):
    if request.param == "full":
        return tiny_model("llama")
    return get_peft_model(tiny_model("llama"), LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False))


def test_the_start_comes_back_for_a_while(model):
    before = logits(model)
    start = StartWeights(model)
    step(model)
    after = logits(model)
    assert not torch.allclose(before, after)
    for _ in range(2):
        with start.restored():
            assert torch.equal(logits(model), before)
        assert torch.equal(logits(model), after)


def test_only_what_is_trained_is_copied():
    model = get_peft_model(tiny_model("llama"), LoraConfig(r=4, target_modules=["q_proj"]))
    assert StartWeights(model).num_bytes == 4 * 2 * (4 * 32 + 32 * 4)


def test_a_graph_built_before_gives_its_gradients_after(model):
    start = StartWeights(model)
    step(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    expected = torch.autograd.grad(logits(model).square().mean(), trained)
    loss = logits(model).square().mean()
    with torch.no_grad(), start.restored():
        logits(model)
    for found, other in zip(torch.autograd.grad(loss, trained), expected, strict=True):
        assert torch.equal(found, other)


def test_an_error_inside_puts_the_present_weights_back(model):
    start = StartWeights(model)
    step(model)
    after = logits(model)
    with pytest.raises(RuntimeError, match="on purpose"), start.restored():
        raise RuntimeError("on purpose")
    assert torch.equal(logits(model), after)


def test_half_precision_copies_of_autocast_are_not_mixed_up():
    layer = nn.Linear(4, 4, bias=False)
    start = StartWeights(layer)
    rows = torch.randn(2, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        before = layer(rows).detach()
    step(layer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        after = layer(rows)
        with torch.no_grad(), start.restored():
            assert torch.equal(layer(rows), before)
        assert torch.equal(layer(rows), after)
