"""Prompts of pairs computed once, on the kernels of a GPU; reward models and references in its precision."""

import pytest
import torch

from tests.equivalence.test_shared_prompts import completions, loss_and_gradients, pairs
from tests.tiny.models import tiny_model
from tunesmith.data.collators import build_collator
from tunesmith.models.attention import resolve_attention
from tunesmith.models.flex import FLEX, find_flex_obstacle
from tunesmith.models.isolation import find_shared_prefix_obstacle
from tunesmith.models.precision import Precision
from tunesmith.models.segments import SEGMENTS
from tunesmith.training.run import run_training

pytestmark = pytest.mark.gpu

TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 5e-2}
FAMILIES = ("llama", "qwen3", "gemma2", "gemma3_text")


def batch_on(device, *, scale=1, num_rows=5, **options):
    batch = build_collator("flat", kind="pairs", pad_token_id=417, **options)(pairs(num_rows, scale=scale))
    return {key: value.to(device) if isinstance(value, torch.Tensor) else value for key, value in batch.items()}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_shared_prompts_give_the_same_numbers(device, family, dtype):
    model = tiny_model(family).to(device, dtype)
    model.set_attn_implementation(SEGMENTS)
    expected, expected_gradients = loss_and_gradients(model, batch_on(device))
    found, gradients = loss_and_gradients(model, batch_on(device, shares_prompts=True))
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(found, expected, atol=tolerance * expected.abs().max().item(), rtol=tolerance)
    for name, gradient in gradients.items():
        largest = max(1e-6, expected_gradients[name].abs().max().item())
        assert (gradient - expected_gradients[name]).abs().max() <= 10 * tolerance * max(largest, 1e-2), name


@pytest.fixture
def flex_model(gpu):
    """Build a toy model with heads that the compiled kernel of flex attention takes."""

    def build(family="llama", dtype=torch.float32):
        model = tiny_model(family, head_dim=64, max_position_embeddings=1024).to(gpu, dtype)
        obstacle = find_flex_obstacle(gpu, model.config, Precision(dtype, dtype, None, "test"))
        if obstacle:
            pytest.skip(f"flex attention {obstacle}")
        model.set_attn_implementation(FLEX)
        return model

    return build


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("shares_prompts", [False, True])
def test_compiled_flex_attention_gives_the_numbers_of_attention_per_segment(
    gpu, flex_model, family, dtype, shares_prompts
):
    """Prompts of up to 300 tokens: blocks that are seen as a whole, in part and not at all."""
    model = flex_model(family, dtype)
    batch = batch_on(gpu, scale=10, shares_prompts=shares_prompts)
    found, gradients = loss_and_gradients(model, batch)
    model.set_attn_implementation(SEGMENTS)
    expected, expected_gradients = loss_and_gradients(model, batch)
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(found, expected, atol=tolerance * expected.abs().max().item(), rtol=tolerance)
    for name, gradient in gradients.items():
        largest = max(1e-6, expected_gradients[name].abs().max().item())
        assert (gradient - expected_gradients[name]).abs().max() <= 10 * tolerance * max(largest, 1e-2), name


def test_rows_of_other_lengths_are_not_compiled_anew_each_time(gpu, flex_model):
    model = flex_model()
    for num_rows in range(1, 4):  # the second length is compiled for any length
        loss_and_gradients(model, batch_on(gpu, scale=10, num_rows=num_rows, shares_prompts=True))
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for num_rows in range(4, 12):
        loss_and_gradients(model, batch_on(gpu, scale=10, num_rows=num_rows, shares_prompts=True))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before


def test_auto_takes_flex_attention_for_pairs(gpu, flex_model):
    model = flex_model()
    choice = resolve_attention("auto", gpu, model.config, shares_prompts=True)
    assert (choice.implementation, choice.supports_flat) == (FLEX, True)
    assert find_shared_prefix_obstacle(model) == ""


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_the_check_at_the_start_of_a_run_passes_in_every_precision(device, dtype):
    model = tiny_model("llama").to(device, dtype)
    model.set_attn_implementation(SEGMENTS)
    assert find_shared_prefix_obstacle(model, Precision(dtype, dtype, None, "test")) == ""


def test_a_shared_row_needs_no_more_memory_than_its_tokens(gpu):
    model = tiny_model("llama", vocab_size=32000).to(gpu)
    model.set_attn_implementation(SEGMENTS)

    def peak(**options):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        with torch.enable_grad():
            completions(model, batch_on(gpu, **options)).sum().backward()
        return torch.cuda.max_memory_allocated()

    assert peak(shares_prompts=True) <= 1.05 * peak()


@pytest.mark.parametrize("stage", ["rm", "dpo"])
def test_a_run_with_shared_prompts_and_a_stored_reference_goes_through(run_on_device, stage):
    settings = {"stage": stage, "dataset": "pairs", "max_steps": 2, "save_strategy": "no", "prefix_sharing": True}
    if stage == "dpo":
        settings["precompute_reference"] = True
    if torch.cuda.is_available():
        settings["flash_attn"] = "segments"
    result = run_training(run_on_device(**settings))
    assert result.state.global_step == 2
