"""Settings become peft's configuration, or an error that names what there is."""

import json

import pytest
import torch
from peft import get_peft_model_state_dict

from tests.tiny.models import tiny_model
from tunesmith.config import AdapterConfig
from tunesmith.errors import ConfigError, ModelError
from tunesmith.models.adapters import apply_adapters, check_adapter_options

EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}


def adapt(model=None, **settings):
    model = tiny_model("llama") if model is None else model
    return apply_adapters(model, AdapterConfig(**settings), (), trained_dtype=torch.float32, is_trainable=True)


def peft_config(**settings):
    return adapt(**settings).model.peft_config["default"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"finetuning_type": "vera", "adapter_options": {"d_inital": 0.1}},
            r"`d_inital` is not an option of vera. Did you mean `d_initial`\? It has r, projection_prng_key",
        ),
        ({"adapter_options": {"r": 4}}, r"`r` has a setting of its own; set `lora_rank` instead"),
        ({"adapter_options": {"target_modules": ["q_proj"]}}, r"set `lora_target` instead"),
        ({"finetuning_type": "oft", "adapter_options": {"oft_block_size": 4}}, r"set `oft_block_size` instead"),
        ({"adapter_options": {"task_type": "SEQ_CLS"}}, r"`task_type` is not an option of lora"),
    ],
)
def test_options_are_those_of_pefts_configuration(settings, message):
    with pytest.raises(ConfigError, match=message):
        check_adapter_options(AdapterConfig(**settings))


def test_options_reach_peft():
    config = peft_config(finetuning_type="vera", adapter_options={"r": 16, "d_initial": 0.5})
    assert (config.r, config.d_initial) == (16, 0.5)
    assert peft_config(adapter_options={"layers_to_transform": [1]}).layers_to_transform == [1]
    oft = peft_config(finetuning_type="oft", oft_block_size=8, module_dropout=0.1)
    assert (oft.oft_block_size, oft.r, oft.module_dropout) == (8, 0, 0.1)


def test_what_peft_refuses_is_said_with_the_method():
    with pytest.raises(ModelError, match=r"finetuning_type: c3a: The block size should be a factor of the input size"):
        adapt(finetuning_type="c3a", adapter_options={"block_size": 7})


def test_patterns_set_ranks_and_strengths_of_single_modules():
    settings = {"lora_rank": 8, "lora_alpha": 8.0, "lora_rank_pattern": {r"layers\.0\..*q_proj": 2.0, "down_proj": 4}}
    model = adapt(**settings, lora_alpha_pattern={"down_proj": 16.0}).model
    ranks = {name: value.shape[0] for name, value in model.named_parameters() if "lora_A" in name}
    assert {rank for name, rank in ranks.items() if "layers.0.self_attn.q_proj" in name} == {2}
    assert {rank for name, rank in ranks.items() if "down_proj" in name} == {4}
    assert {rank for name, rank in ranks.items() if "up_proj" in name or "layers.1.self_attn.q_proj" in name} == {8}
    assert model.get_base_model().model.layers[0].mlp.down_proj.scaling == {"default": 4.0}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"lora_rank_pattern": {"w_pack": 4}},
            r"lora_rank_pattern: `w_pack` fits no adapter. There are adapters on",
        ),
        ({"lora_alpha_pattern": {"w_pack": 4}}, r"lora_alpha_pattern: `w_pack` fits no adapter"),
        (
            {"lora_target": ("q_proj",), "additional_target": ("q_proj",)},
            r"additional_target: q_proj would be trained whole, and lora_target puts adapters on the same modules",
        ),
        (
            {"lora_target": ("all",), "additional_target": ("o_proj", "norm")},
            r"additional_target: o_proj would be trained whole",
        ),
    ],
)
def test_patterns_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(ModelError, match=message):
        adapt(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lora_dropout": 0.1}, "lora_dropout: adapters on fused experts cannot have dropout"),
        ({"use_dora": True}, "use_dora: is not possible on fused experts"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights: pissa is not possible on fused experts"),
    ],
)
def test_what_fused_experts_cannot_have_is_refused_with_a_way_out(settings, message):
    with pytest.raises(ModelError, match=f"{message}.*lora_target: all-linear"):
        adapt(tiny_model("qwen3_moe", **EXPERTS), **settings)


def test_other_methods_leave_fused_experts_alone_and_say_so():
    result = adapt(tiny_model("qwen3_moe", **EXPERTS), finetuning_type="vera")
    assert any("only finetuning_type: lora can be put on them" in note for note in result.notes)
    with pytest.raises(ModelError, match="vera cannot be put on fused experts"):
        adapt(tiny_model("qwen3_moe", **EXPERTS), finetuning_type="vera", lora_target=("experts",))


def test_norms_and_token_rows_are_found_by_themselves():
    model = adapt(finetuning_type="ln_tuning").model
    assert len({name for name, value in model.named_parameters() if value.requires_grad}) == 5
    rows = adapt(finetuning_type="trainable_tokens", adapter_options={"token_indices": [7]}).model
    assert [value.numel() for value in rows.parameters() if value.requires_grad] == [32]


@pytest.mark.parametrize("kind", ["prompt_tuning", "trainable_tokens"])
def test_methods_without_whole_modules_refuse_them(kind):
    options = {"token_indices": [7]} if kind == "trainable_tokens" else {}
    with pytest.raises(ModelError, match=f"additional_target: {kind} trains no modules besides its own"):
        adapt(finetuning_type=kind, adapter_options=options, additional_target=("norm",))


def test_names_and_settings_are_those_that_vllm_reads(tmp_path):
    # vLLM takes weights by these names, and refuses DoRA, biases, copies of modules and settings it does not know.
    model = adapt(lora_rank=4, lora_alpha=12.0).model
    names = set(get_peft_model_state_dict(model))
    layers = [f"base_model.model.model.layers.{layer}.self_attn.q_proj" for layer in (0, 1)]
    assert {f"{layer}.lora_{factor}.weight" for layer in layers for factor in "AB"} <= names
    assert all(name.endswith(("lora_A.weight", "lora_B.weight")) for name in names)
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (saved["r"], saved["lora_alpha"], saved["bias"]) == (4, 12, "none")
    assert isinstance(saved["lora_alpha"], int)
    assert saved["modules_to_save"] is None
    assert saved["use_dora"] is False
    assert set(saved["target_modules"]) == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


@pytest.mark.parametrize("kind", ["ia3", "oft"])
def test_tied_ends_that_come_apart_are_announced(kind):
    made = adapt(finetuning_type=kind, additional_target=("embed_tokens",))
    assert any(note.startswith("embedding and head shared their weights and do not any more") for note in made.notes)


def test_tied_ends_stay_one_beside_lora():
    made = adapt(additional_target=("embed_tokens",))
    assert not any("shared their weights" in note for note in made.notes)
