import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from tests.tiny.models import tiny_model
from tunesmith.models.dropout import switch_dropout_off

IDS = torch.arange(5, 25)[None]


def runs(model):
    """Two forward passes in training mode, which dropout makes different."""
    model.train()
    return [model(input_ids=IDS).logits for _ in range(2)]


def test_a_model_in_training_mode_gives_the_same_twice():
    model = tiny_model("llama", attention_dropout=0.5)
    torch.manual_seed(0)
    model = get_peft_model(
        model, LoraConfig(r=4, lora_dropout=0.5, target_modules="all-linear", init_lora_weights=False)
    )
    first, second = runs(model)
    assert not torch.equal(first, second)
    switch_dropout_off(model)
    first, second = runs(model)
    assert torch.equal(first, second)
    model.eval()
    torch.testing.assert_close(model(input_ids=IDS).logits, first)


def test_dropout_layers_stay_and_do_nothing():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train()
    switch_dropout_off(model)
    values = torch.ones(3, 4)
    assert torch.equal(model(values), model[0](values))
    assert isinstance(model[1], nn.Dropout)
