import sys
from types import ModuleType

import pytest
import torch

from tests.tiny.models import tiny_model
from tunesmith.errors import ModelError
from tunesmith.models.quantization.fp8 import use_float8_products


def test_a_machine_without_a_gpu_is_refused():
    with pytest.raises(ModelError, match=r"fp8: true needs an NVIDIA GPU.*this run is on cpu"):
        use_float8_products(tiny_model(), torch.device("cpu"))


def test_a_gpu_without_such_products_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    with pytest.raises(ModelError, match=r"8.9 or newer \(Ada, Hopper\), and this one has 8.0"):
        use_float8_products(tiny_model(), torch.device("cuda"))


@pytest.fixture
def converted(monkeypatch):
    """Stand in for torchao's conversion and for a GPU that has the products; return the names that were chosen."""
    names = []
    module = ModuleType("torchao.float8")

    def convert(model, module_filter_fn):
        names.extend(name for name, part in model.named_modules() if module_filter_fn(part, name))

    module.convert_to_float8_training = convert
    monkeypatch.setitem(sys.modules, "torchao.float8", module)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    return names


def test_layers_of_fitting_size_are_converted_and_the_head_is_not(converted):
    note = use_float8_products(tiny_model(), torch.device("cuda"))
    assert note.startswith("fp8: 14 linear layers")
    assert len(converted) == 14
    assert "lm_head" not in converted


def test_a_model_without_a_fitting_layer_is_refused(converted):
    model = tiny_model(hidden_size=24, intermediate_size=40, num_attention_heads=3, num_key_value_heads=3)
    with pytest.raises(ModelError, match="no linear layer has sides that are multiples of 16"):
        use_float8_products(model, torch.device("cuda"))
