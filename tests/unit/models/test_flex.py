"""Flex attention over flat rows and shared prompts gives what attention per segment gives."""

import pytest
import torch

from tests.tiny.models import tiny_model
from tests.unit.models.test_segments import branched, branches_of, flat, gradients, samples
from tunesmith.errors import ModelError
from tunesmith.models import attention, flex
from tunesmith.models.attention import resolve_attention
from tunesmith.models.flex import FLEX, find_flex_obstacle
from tunesmith.models.isolation import check_isolation, find_shared_prefix_obstacle
from tunesmith.models.precision import Precision
from tunesmith.models.segments import SEGMENTS

HALF = Precision(torch.bfloat16, torch.float32, torch.bfloat16, "test")


def compare(model, row, pick=lambda values: values):
    model.set_attn_implementation(SEGMENTS)
    expected = pick(model(**row, use_cache=False).logits[0])
    expected_gradients = gradients(model, expected)
    model.set_attn_implementation(FLEX)
    found = pick(model(**row, use_cache=False).logits[0])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for a, b in zip(gradients(model, found), expected_gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3_text"])  # grouped heads; a soft cap; windows
def test_shared_prompts_equal_those_of_attention_per_segment(uncompiled_flex, family):
    row, _ = branched()
    compare(tiny_model(family), row, branches_of)


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_flat_rows_equal_those_of_attention_per_segment(uncompiled_flex, family):
    compare(tiny_model(family), flat(samples()))


def test_rows_of_several_samples_side_by_side_have_a_mask_each(uncompiled_flex):
    parts = samples()
    rows = [flat(parts), flat(parts[::-1])]
    model = tiny_model("llama")
    together = {key: torch.cat([row[key] for row in rows]) for key in rows[0]}
    model.set_attn_implementation(SEGMENTS)
    expected = model(**together, use_cache=False).logits
    model.set_attn_implementation(FLEX)
    torch.testing.assert_close(model(**together, use_cache=False).logits, expected, atol=1e-5, rtol=1e-5)


def test_the_mask_is_made_once_for_all_layers(uncompiled_flex, monkeypatch):
    made = []
    build = flex.build_block_mask
    monkeypatch.setattr(flex, "build_block_mask", lambda *args, **options: made.append(1) or build(*args, **options))
    model = tiny_model("llama", layers=3)
    model.set_attn_implementation(FLEX)
    row, _ = branched()
    model(**row, use_cache=False)
    assert len(made) == 1


def test_the_proofs_at_the_start_of_a_run_hold(uncompiled_flex):
    model = tiny_model("llama")
    model.set_attn_implementation(FLEX)
    check_isolation(model, "flat")
    assert find_shared_prefix_obstacle(model) == ""


def test_a_rule_that_shows_a_completion_the_other_is_found_out(uncompiled_flex, monkeypatch):
    def merge(rows, **options):
        return torch_merge([[(group[0], sum(group[1:])) for group in groups] for groups in rows], **options)

    torch_merge = flex.build_block_mask
    monkeypatch.setattr(flex, "build_block_mask", merge)
    model = tiny_model("llama")
    model.set_attn_implementation(FLEX)
    assert "behind a shared prompt are not what they are by themselves" in find_shared_prefix_obstacle(model)


def test_branches_that_do_not_describe_the_row_are_refused(uncompiled_flex):
    model = tiny_model("llama")
    model.set_attn_implementation(FLEX)
    row, _ = branched()
    with pytest.raises(ValueError, match="describes 12 tokens"):
        model(**{**row, "branch_lengths": ((5, 3, 4),)}, use_cache=False)


def test_dropped_attention_weights_are_refused(uncompiled_flex):
    model = tiny_model("llama", attention_dropout=0.1).train()
    model.set_attn_implementation(FLEX)
    with pytest.raises(ModelError, match=r"attention_dropout of 0\.1. Set attention_dropout to 0"):
        model(**flat(samples()), use_cache=False)


# -- whether it can be used here -----------------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch):
    """Pretend to be on a GPU with Triton, where the kernel compiles."""

    def build(major=9, failure="", has_triton=True):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (major, 0))
        monkeypatch.setattr(flex, "find_spec", lambda name: object() if has_triton else None)
        monkeypatch.setattr(flex, "_find_failure", lambda *shape: failure)
        for version in ("2", "3"):
            monkeypatch.setattr(attention, f"is_flash_attn_{version}_available", lambda: False)

    return build


@pytest.mark.parametrize(
    ("machine", "width", "obstacle"),
    [
        ({}, 64, ""),
        ({"major": 7}, 64, r"needs an Ampere GPU or newer, and this one has compute capability 7.0"),
        ({"has_triton": False}, 64, "needs the package triton, which is not installed"),
        ({}, 8, "needs heads of 16 or more, and those of this model have a width of 8"),
        ({"failure": "does not run on this GPU (no registers)"}, 64, "does not run on this GPU (no registers)"),
    ],
)
def test_what_stands_in_the_way_is_told_and_auto_takes_another(gpu, machine, width, obstacle):
    gpu(**machine)
    config = tiny_model("llama", head_dim=width).config
    assert find_flex_obstacle(torch.device("cuda"), config, HALF) == obstacle
    choice = resolve_attention("auto", "cuda", config, HALF, shares_prompts=True)
    assert choice.implementation == (SEGMENTS if obstacle else FLEX)
    assert choice.supports_flat
    assert obstacle in choice.reason
    if obstacle:
        with pytest.raises(ModelError, match=r"flash_attn: flex attention .* Set flash_attn: auto"):
            resolve_attention("flex", "cuda", config, HALF)
    else:
        assert resolve_attention("flex", "cuda", config, HALF).implementation == FLEX


def test_auto_takes_flex_attention_for_shared_prompts_alone(gpu):
    gpu()
    config = tiny_model("llama", head_dim=64).config
    assert resolve_attention("auto", "cuda", config, HALF).implementation == SEGMENTS
    assert resolve_attention("auto", "cpu", config, HALF, shares_prompts=True).implementation == SEGMENTS


def test_flash_attention_stays_where_flex_attention_cannot_run(gpu, monkeypatch):
    gpu(has_triton=False)
    monkeypatch.setattr(attention, "is_flash_attn_2_available", lambda: True)
    choice = resolve_attention("auto", "cuda", tiny_model("llama").config, HALF, shares_prompts=True)
    assert choice.implementation == "flash_attention_2"
    assert "needs the package triton" in choice.reason


def test_a_kernel_that_cannot_be_compiled_is_told_in_one_line(monkeypatch):
    def fail(*args, **options):
        raise RuntimeError("out of resource: shared memory\nand much more")

    flex._find_failure.cache_clear()
    monkeypatch.setattr(flex, "flex_attention_forward", fail)
    found = flex._find_failure(torch.device("cpu"), 4, 2, 16, torch.float32)
    assert found == "does not run on this GPU (out of resource: shared memory)"
    flex._find_failure.cache_clear()


def test_a_kernel_that_runs_is_no_obstacle(uncompiled_flex):
    flex._find_failure.cache_clear()
    assert flex._find_failure(torch.device("cpu"), 4, 2, 16, torch.float32) == ""
    flex._find_failure.cache_clear()
