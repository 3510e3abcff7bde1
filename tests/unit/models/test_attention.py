"""Choosing an attention, and refusing one that lets samples see each other."""

import pytest
import torch

from tests.tiny.models import tiny_model
from tunesmith.errors import ModelError
from tunesmith.models import attention
from tunesmith.models.attention import computes_exactly, resolve_attention
from tunesmith.models.precision import Precision
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
    with pytest.raises(ModelError, match="flex attention has no backward pass on CPU"):
        resolve_attention("flex", "cpu")


def test_models_with_recurrent_layers_get_no_flat_rows():
    config = tiny_model("qwen3").config
    config.layer_types = ["linear_attention", "full_attention"]
    choice = resolve_attention("auto", "cpu", config)
    assert not choice.supports_flat
    assert "linear_attention" in choice.reason


HALF = Precision(torch.bfloat16, torch.float32, torch.bfloat16, "test")
FULL = Precision(torch.float32, torch.float32, None, "test")


@pytest.fixture
def flash_attention_machine(monkeypatch):
    """Pretend that both flash attentions are installed, on a GPU of a given capability."""

    def build(major: int) -> None:
        monkeypatch.setattr(attention, "is_flash_attn_2_available", lambda: True)
        monkeypatch.setattr(attention, "is_flash_attn_3_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (major, 0))

    return build


@pytest.mark.parametrize(
    ("major", "precision", "expected"),
    [
        (9, HALF, "flash_attention_3"),
        (9, None, "flash_attention_3"),
        (8, HALF, "flash_attention_2"),
        (10, HALF, "flash_attention_2"),
        (7, HALF, SEGMENTS),
        (9, FULL, SEGMENTS),
    ],
)
def test_auto_takes_the_flash_attention_that_this_gpu_and_precision_can_run(
    flash_attention_machine, major, precision, expected
):
    flash_attention_machine(major)
    choice = resolve_attention("auto", "cuda", precision=precision)
    assert (choice.implementation, choice.supports_flat) == (expected, True)


def test_flash_attention_that_cannot_run_is_refused_before_it_fails(flash_attention_machine):
    flash_attention_machine(7)
    with pytest.raises(ModelError, match=r"fa2 needs an Ampere GPU or newer, and this one has compute capability 7\.0"):
        resolve_attention("fa2", "cuda")
    flash_attention_machine(8)
    with pytest.raises(ModelError, match="fa3 needs a Hopper GPU"):
        resolve_attention("fa3", "cuda")
    with pytest.raises(ModelError, match="fa2 computes in bf16 or fp16 only, and this run computes in float32"):
        resolve_attention("fa2", "cuda", precision=FULL)


def test_rounded_products_are_not_held_to_the_tolerance_of_float32(monkeypatch):
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert computes_exactly(torch.float32, cuda, FULL)
    assert computes_exactly(torch.float32, cuda, None)
    assert not computes_exactly(torch.bfloat16, cuda, None)
    assert not computes_exactly(torch.float32, cuda, HALF)  # brought to float32 after the fact
    monkeypatch.setattr(torch.backends, "fp32_precision", "tf32")  # as transformers does for `tf32: true`
    assert not computes_exactly(torch.float32, cuda, FULL)
    assert computes_exactly(torch.float32, cpu, FULL)
