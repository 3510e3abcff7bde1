"""Counting parameters."""

import pytest
import torch
from peft import IA3Config, LoraConfig, OFTConfig, PromptTuningConfig, get_peft_model

from tests.tiny.models import tiny_model
from tunesmith.models.quantization.hqq import compress_linears
from tunesmith.models.summary import list_parameter_status, summarize_parameters


def test_groups_add_up_and_shared_weights_count_once():
    summary = summarize_parameters(tiny_model("llama"))
    counts = {group.group: group.total for group in summary.groups}
    # per layer: q and o 32x32, k and v 32x16; three 32x64; two norms of 32; and one norm at the end
    assert counts == {"embeddings": 420 * 32, "attention": 2 * 3072, "mlp": 2 * 6144, "norms": 5 * 32}
    assert summary.total == summary.trainable == 420 * 32 + 2 * 3072 + 2 * 6144 + 160


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_packed_weights_count_as_what_they_stand_for(bits):
    pytest.importorskip("hqq")
    model = tiny_model("llama")
    before = {group.group: group.total for group in summarize_parameters(model).groups}
    compress_linears(model, bits=bits, compute_dtype=torch.float32, device="cpu")
    assert {group.group: group.total for group in summarize_parameters(model).groups} == before


def test_untied_head_has_its_own_row():
    counts = {group.group: group.total for group in summarize_parameters(tiny_model("llama", tied=False)).groups}
    assert counts["head"] == counts["embeddings"] == 420 * 32


def test_adapters_are_told_apart_and_rendered():
    config = LoraConfig(r=2, target_modules=["q_proj", "up_proj"], modules_to_save=["model.norm"])
    model = get_peft_model(tiny_model("llama"), config)
    summary = summarize_parameters(model)
    trained = {group.group: group.trainable for group in summary.groups if group.trainable}
    # q: 2 layers x (2x32 + 32x2); up: 2 layers x (2x32 + 64x2); a copy of the last norm
    assert trained == {"adapters on attention": 256, "adapters on mlp": 384, "trained copies": 32}
    lines = summary.render().splitlines()
    assert lines[0].split() == ["modules", "trainable", "total", "type"]
    assert lines[-1].split() == ["all", "672", f"{summary.total:,}"]
    assert summary.render_line() == f"trainable 672 of {summary.total:,} parameters ({100 * 672 / summary.total:.4g}%)"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # a rotation of four blocks of 8x8, each with 28 free numbers, for an input of 32
        (OFTConfig(r=0, oft_block_size=8, target_modules=["q_proj"]), {"adapters on attention": 2 * 4 * 28}),
        (PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3), {"other adapters": 3 * 32}),
        (IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
         {"adapters on attention": 2 * 16, "adapters on mlp": 2 * 64}),
    ],
)  # fmt: skip
def test_adapters_of_every_method_have_rows_of_their_own(config, expected):
    summary = summarize_parameters(get_peft_model(tiny_model("llama"), config))
    assert {group.group: group.trainable for group in summary.groups if group.trainable} == expected


def test_adapters_on_fused_experts_are_told_apart():
    settings = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}
    config = LoraConfig(r=2, target_modules=["q_proj"], target_parameters=["experts.down_proj"])
    summary = summarize_parameters(get_peft_model(tiny_model("qwen3_moe", **settings), config))
    trained = {group.group: group.trainable for group in summary.groups if group.trainable}
    # q: 2 layers x (2x32 + 32x2); down: 2 layers x 4 experts x (2x16 + 32x2)
    assert trained == {"adapters on attention": 256, "adapters on experts": 2 * 4 * 96}


def test_status_lines_say_what_is_trained():
    model = tiny_model("llama")
    model.model.norm.weight.requires_grad_(False)
    lines = list(list_parameter_status(model))
    assert "model.norm.weight (32,) float32 cpu frozen" in lines
    assert "model.embed_tokens.weight (420, 32) float32 cpu trained" in lines
