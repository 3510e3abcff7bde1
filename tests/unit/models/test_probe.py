import pytest
import torch

from tests.tiny.models import tiny_model
from tunesmith.models.probe import probe_logits, relative_difference


def test_a_model_in_training_is_looked_at_without_dropout_and_left_in_training():
    model = tiny_model("phi3")
    expected = probe_logits(model)
    dropouts = [module for module in model.modules() if isinstance(module, torch.nn.Dropout)]
    assert dropouts
    for module in dropouts:
        module.p = 0.9
    assert torch.equal(probe_logits(model.train()), expected)
    assert model.training


def test_a_difference_is_a_share_of_the_largest_value():
    expected = torch.tensor([1.0, -4.0, 2.0])
    assert relative_difference(expected + torch.tensor([0.0, 0.0, 0.2]), expected) == pytest.approx(0.05)
    assert relative_difference(expected, expected) == 0.0
