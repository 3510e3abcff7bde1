"""A flat row of several samples gives each what it gets alone, on the kernels of a GPU."""

from itertools import accumulate

import pytest
import torch
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

from tests.tiny.models import tiny_model
from tunesmith.errors import ModelError
from tunesmith.models import attention
from tunesmith.models.attention import resolve_attention
from tunesmith.models.isolation import check_isolation
from tunesmith.models.precision import Precision
from tunesmith.models.segments import SEGMENTS
from tunesmith.training.run import run_training

pytestmark = pytest.mark.gpu

LENGTHS = (5, 1, 40, 23, 64)  # the last three are longer than the toy windows of 16
FAMILIES = ("llama", "qwen3", "gemma2", "gemma3_text")  # grouped heads in all; soft cap; windows
TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 8e-3}
FLASH = {
    "fa2": ("flash_attention_2", is_flash_attn_2_available, 8),
    "fa3": ("flash_attention_3", is_flash_attn_3_available, 9),
}


def samples(device):
    rng = torch.Generator().manual_seed(3)
    return [torch.randint(3, 420, (length,), generator=rng).to(device) for length in LENGTHS]


def flat(parts, *, with_borders):
    device = parts[0].device
    inputs = {
        "input_ids": torch.cat(parts)[None],
        "position_ids": torch.cat([torch.arange(len(part), device=device) for part in parts])[None],
    }
    if with_borders:
        borders = torch.tensor([0, *accumulate(map(len, parts))], dtype=torch.int32, device=device)
        inputs |= {"cu_seq_lens_q": borders, "cu_seq_lens_k": borders, "max_length_q": 64, "max_length_k": 64}
    return inputs


def logits_and_gradients(model, rows):
    model.zero_grad()
    logits = torch.cat([model(**inputs, use_cache=False).logits[0] for inputs in rows]).float()
    (logits.square().sum() / 100).backward()  # a mean would make gradients too small for fp16
    return logits.detach(), [parameter.grad.float() for parameter in model.parameters()]


def check_flat_equals_separate(model, parts, implementation, reference, tolerance):
    model.set_attn_implementation(reference)
    expected, expected_gradients = logits_and_gradients(model, [{"input_ids": part[None]} for part in parts])
    model.set_attn_implementation(implementation)
    for with_borders in (False, True):
        found, gradients = logits_and_gradients(model, [flat(parts, with_borders=with_borders)])
        assert (found - expected).abs().max() <= tolerance * expected.abs().max()
        for ours, theirs in zip(gradients, expected_gradients, strict=True):
            assert (ours - theirs).norm() <= 3 * tolerance * theirs.norm() + 1e-6


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_segments_equal_separate_rows(device, family, dtype):
    model = tiny_model(family).to(device, dtype)
    check_flat_equals_separate(model, samples(device), SEGMENTS, "eager", TOLERANCES[dtype])


@pytest.mark.parametrize("family", FAMILIES)
def test_changing_one_sample_never_moves_another(device, family):
    model, parts = tiny_model(family).to(device), samples(device)
    model.set_attn_implementation(SEGMENTS)
    before, after = [], []
    for logits in (before, after):
        with torch.no_grad():
            logits.extend(model(**flat(parts, with_borders=True), use_cache=False).logits[0].split(LENGTHS))
        parts[2] = (parts[2] + 7) % 400
    for index in (0, 1, 3, 4):
        torch.testing.assert_close(before[index], after[index], atol=1e-6, rtol=1e-6)
    assert not torch.allclose(before[2], after[2], atol=1e-3)


@pytest.fixture(params=FLASH)
def flash(request, gpu):
    """Name of a flash attention that this machine can run."""
    _, is_installed, least_capability = FLASH[request.param]
    if not is_installed():
        pytest.skip(f"the package of {request.param} is not installed")
    major, minor = torch.cuda.get_device_capability(gpu)
    if major < least_capability or (request.param == "fa3" and major != least_capability):
        pytest.skip(f"{request.param} does not run on compute capability {major}.{minor}")
    return request.param


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_flash_attention_equals_separate_rows(gpu, flash, family, dtype):
    implementation = FLASH[flash][0]
    model = tiny_model(family, head_dim=64).to(gpu, dtype)
    check_flat_equals_separate(model, samples(gpu), implementation, "eager", TOLERANCES[dtype])
    check_isolation(model, "flat", Precision(dtype, dtype, None, "test"))


@pytest.mark.parametrize("tuning", [{}, {"finetuning_type": "full"}], ids=["lora", "full"])
def test_a_run_with_flash_attention_learns(flash, run_on_device, tuning):
    config = run_on_device(flash_attn=flash, num_train_epochs=3, logging_steps=1, save_strategy="no", **tuning)
    losses = [line["loss"] for line in run_training(config).state.log_history if "loss" in line]
    assert losses[-1] < losses[0]


def test_flash_attention_in_fp32_is_refused(flash, run_on_device):
    with pytest.raises(ModelError, match="computes in bf16 or fp16 only"):
        run_training(run_on_device(flash_attn=flash, bf16=False))


def test_auto_takes_the_best_that_is_installed(gpu):
    choice = resolve_attention("auto", gpu, precision=Precision(torch.bfloat16, torch.float32, torch.bfloat16, "test"))
    major = torch.cuda.get_device_capability(gpu)[0]
    names = [
        name for name, is_installed, least in FLASH.values() if is_installed() and (major == 9 or major >= least == 8)
    ]
    assert choice.implementation == max(names, default=SEGMENTS)
    assert choice.supports_flat


def test_flash_attention_without_its_package_is_refused(gpu, run_on_device, monkeypatch):
    monkeypatch.setattr(attention, "is_flash_attn_2_available", lambda: False)
    with pytest.raises(ModelError, match="fa2 needs the package flash-attn, which is not installed"):
        run_training(run_on_device(flash_attn="fa2"))
