"""Names and groups of lora_target, against the modules a model really has."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from tests.tiny.models import tiny_model
from tunesmith.errors import ModelError
from tunesmith.models.adapters import resolve_lora_targets
from tunesmith.models.adapters.targets import resolve_targets

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (["all"], ATTENTION + MLP),
        (["all-linear"], ATTENTION + MLP),
        (["llama_attn"], ATTENTION),
        (["llama_mlp"], MLP),
        (["qwen2_mlp"], MLP),  # the family's name is a habit; the loaded model decides
        (["gemma3_text_attn"], ATTENTION),
        (["self_attn"], ATTENTION),
        (["mlp"], MLP),
        (["q_proj", "v_proj"], ["q_proj", "v_proj"]),
        (["q_proj", "llama_attn"], ATTENTION),
        (["model.layers.1.mlp.up_proj"], ["model.layers.1.mlp.up_proj"]),
        (["lm_head", "embed_tokens"], ["lm_head", "embed_tokens"]),
    ],
)
def test_target_resolves_to_the_models_own_names(targets, expected):
    assert resolve_lora_targets(tiny_model("llama", tied=False), targets) == expected


@pytest.mark.parametrize(
    ("family", "attention", "mlp"),
    [
        ("phi3", ["qkv_proj", "o_proj"], ["gate_up_proj", "down_proj"]),
        ("gemma2", ATTENTION, MLP),
        ("cohere", ATTENTION, MLP),
    ],
)
def test_groups_follow_the_family(family, attention, mlp):
    model = tiny_model(family)
    assert sorted(resolve_lora_targets(model, ["x_attn"])) == sorted(attention)
    assert sorted(resolve_lora_targets(model, ["x_mlp"])) == sorted(mlp)


def test_name_shared_by_attention_and_mlp_is_spelled_out_for_a_group():
    model = tiny_model("gpt2", n_embd=32, n_head=4, n_layer=2)
    assert resolve_lora_targets(model, ["gpt2_mlp"]) == [
        "c_fc",
        "transformer.h.0.mlp.c_proj",
        "transformer.h.1.mlp.c_proj",
    ]
    assert resolve_lora_targets(model, ["all"]) == ["c_attn", "c_proj", "c_fc"]


def test_target_that_matches_nothing_lists_what_exists():
    with pytest.raises(ModelError) as error:
        resolve_lora_targets(tiny_model("llama"), ["q_proj", "query", "W_pack"])
    text = str(error.value)
    assert text.startswith("lora_target: 'query', 'W_pack' matches nothing in LlamaForCausalLM.")
    assert "llama_attn (q_proj, k_proj, v_proj, o_proj)" in text
    assert "llama_mlp (gate_proj, up_proj, down_proj)" in text


def mixture():
    return tiny_model("qwen3_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, head_dim=8)


EXPERTS = ("experts.gate_up_proj", "experts.down_proj")


@pytest.mark.parametrize(
    ("name", "modules", "parameters"),
    [
        ("all", ATTENTION, EXPERTS),
        ("all-linear", ATTENTION, ()),
        ("experts", [], EXPERTS),
        ("qwen3_moe_mlp", [], EXPERTS),
        ("qwen3_moe_attn", ATTENTION, ()),
        ("experts.down_proj", [], ("experts.down_proj",)),
        ("routers", [], ("gate.weight",)),
        ("gate", [], ("gate.weight",)),
    ],
)
def test_fused_experts_and_routers_are_reached_by_name(name, modules, parameters):
    model = mixture()
    targets = resolve_targets(model, [name])
    assert targets.modules == tuple(modules)
    assert targets.parameters == parameters
    config = LoraConfig(r=2, target_modules=list(targets.modules), target_parameters=list(targets.parameters) or None)
    trained = [n for n, p in get_peft_model(model, config).named_parameters() if p.requires_grad]
    assert len(trained) == 2 * 2 * (len(modules) + len(parameters))  # two layers, A and B


def test_experts_without_an_adapter_are_noted():
    assert "the experts (experts.gate_up_proj, experts.down_proj) get no adapter; add 'experts'" in "; ".join(
        resolve_targets(mixture(), ["all-linear"]).notes
    )
    assert "only finetuning_type: lora can" in resolve_targets(mixture(), ["all"], with_experts=False).notes[1]


def test_modules_are_counted_by_name_with_the_share_of_weights_they_hold():
    # of two layers: q 32x32 and gate_up 4x32x32 (4 experts, two halves of 16); embeddings are tied
    model = mixture()
    covered = 2 * (32 * 32 + 4 * 32 * 32)
    share = 100 * covered / sum(value.numel() for value in model.parameters())
    (note,) = resolve_targets(model, ["q_proj", "experts.gate_up_proj"]).notes
    assert note == f"adapters on 4 modules (q_proj 2, experts.gate_up_proj 2), beside {share:.1f}% of all weights"


def test_a_mixtrals_experts_are_part_of_all_too():
    model = tiny_model("mixtral", num_local_experts=4, num_experts_per_tok=2)
    targets = resolve_targets(model, ["all"])
    assert (targets.modules, targets.parameters) == (tuple(ATTENTION), EXPERTS)


def test_output_head_and_routers_are_not_part_of_all():
    model = tiny_model("llama", tied=False)
    model.model.layers[0].mlp.gate = nn.Linear(32, 4)
    assert resolve_lora_targets(model, ["all"]) == ATTENTION + MLP
    assert torch.is_tensor(model.lm_head.weight)
