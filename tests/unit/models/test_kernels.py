"""Fused kernels are put in and compared; the package itself needs a GPU, so that a stand-in plays it here."""

import sys
from types import ModuleType

import pytest
import torch

from tests.tiny.models import tiny_model
from tunesmith.errors import MissingDependencyError, ModelError
from tunesmith.models.kernels import check_flash_attention, check_same_logits, use_liger_kernels
from tunesmith.models.precision import Precision

EXACT = Precision(torch.float32, torch.float32, None, "")


@pytest.fixture
def liger(monkeypatch):
    """Stand in for liger-kernel: it knows Llama, and multiplies the first norm by `factor`."""
    module = ModuleType("liger_kernel.transformers.monkey_patch")
    module.MODEL_TYPE_TO_APPLY_LIGER_FN = {"llama": None}
    module.factor, module.calls = 1.0, []

    def apply(model, **options):
        module.calls.append(options)
        model.model.layers[0].input_layernorm.weight.data.mul_(module.factor)

    module._apply_liger_kernel_to_instance = apply
    for name in ("liger_kernel", "liger_kernel.transformers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_kernels_are_put_in_without_their_cross_entropy(liger):
    assert use_liger_kernels(tiny_model(), EXACT) == "liger kernels for llama, checked against the model without them"
    assert liger.calls == [{"fused_linear_cross_entropy": False, "cross_entropy": False}]


def test_kernels_that_compute_something_else_are_refused(liger):
    liger.factor = 3.0
    with pytest.raises(ModelError, match="enable_liger_kernel: enable_liger_kernel: true changes the model's logits"):
        use_liger_kernels(tiny_model(), EXACT)


def test_a_family_that_the_package_does_not_know_is_refused(liger):
    with pytest.raises(ModelError, match="liger-kernel has no kernels for granite"):
        use_liger_kernels(tiny_model("granite"), EXACT)


def test_the_package_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    with pytest.raises(MissingDependencyError, match="liger"):
        use_liger_kernels(tiny_model(), EXACT)


def test_an_attention_that_gives_the_logits_of_sdpa_passes_and_stays(monkeypatch):
    model = tiny_model()
    model.set_attn_implementation("eager")
    check_flash_attention(model, "eager", EXACT)
    assert model.config._attn_implementation == "eager"


def test_an_attention_that_gives_other_logits_is_refused():
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    def broken(module, query, key, value, *args, **kwargs):
        output, weights = sdpa_attention_forward(module, query, key, value, *args, **kwargs)
        return output * 0.5, weights

    AttentionInterface.register("broken_attention", broken)
    model = tiny_model()
    model.set_attn_implementation("broken_attention")
    with pytest.raises(ModelError, match=r"flash attention \(broken_attention\) changes the model's logits"):
        check_flash_attention(model, "broken_attention", EXACT)


def test_rounding_is_no_difference_and_nan_is():
    expected = torch.tensor([[10.0, -20.0]])
    check_same_logits(expected + 0.9, expected, "x", "y")
    for found in (expected + 1.1, expected * float("nan")):
        with pytest.raises(ModelError, match="y: x changes the model's logits by"):
            check_same_logits(found, expected, "x", "y")
