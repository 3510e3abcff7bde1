"""What vLLM makes of an adapter: what it refuses, what it would compute wrongly, and what it has to be told."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.tiny.models import tiny_model
from tunesmith.config import AdapterConfig
from tunesmith.models.adapters import apply_adapters
from tunesmith.models.adapters.begin import compute_first_weights
from tunesmith.models.adapters.vllm import VllmVerdict, judge, judge_adapted, judge_saved

EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}


def adapted(family="llama", tied=True, overrides=None, **settings):
    base = tiny_model(family, tied=tied, **(overrides or {}))
    return apply_adapters(base, AdapterConfig(**settings), [], trained_dtype=torch.float32, is_trainable=True)


@pytest.mark.parametrize("settings", [{}, {"use_rslora": True}, {"lora_dropout": 0.1}, {"lora_rank": 16}])
def test_plain_lora_is_served_as_it_is(settings):
    assert judge_adapted(adapted(**settings).model) == VllmVerdict()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"use_dora": True}, "it has no DoRA"),
        ({"additional_target": ("norm",)}, "it takes no modules that were trained whole (norm)"),
        ({"adapter_options": {"bias": "all"}}, "it takes no biases"),
        ({"adapter_options": {"lora_bias": True}}, "it takes no biases"),
        ({"adapter_options": {"trainable_token_indices": [5]}}, "it takes no rows of the embedding"),
        ({"lora_rank": 513}, "its ranks go up to 512, and this has 513"),
        ({"lora_rank_pattern": {"q_proj": 2}}, "which is wrong for q_proj (lora_rank_pattern, lora_alpha_pattern)"),
        ({"lora_alpha_pattern": {"q_proj": 2}}, "which is wrong for q_proj"),
        ({"finetuning_type": "ia3"}, "it reads LoRA alone, and this is ia3"),
    ],
)
def test_what_it_cannot_do_is_said_before_the_training(settings, reason):
    made = adapted(**settings)
    assert reason in "; ".join(judge_adapted(made.model).obstacles)
    notes = [note for note in made.notes if note.startswith("vLLM will not be able to serve this adapter: ")]
    assert len(notes) == 1
    assert notes[0].endswith("; serve the merged model of `tunesmith export`")


def test_a_learnt_prompt_can_neither_be_served_nor_merged():
    made = adapted(finetuning_type="prompt_tuning", adapter_options={"num_virtual_tokens": 4})
    assert any(note.endswith("this is prompt_tuning; nor can it be merged") for note in made.notes)
    verdict = judge_adapted(made.model)
    assert verdict.render_advice("out") == (
        "vLLM cannot serve this adapter: it reads LoRA alone, and this is prompt_tuning."
    )


def test_other_ranks_of_the_same_strength_are_served():
    made = adapted(lora_rank=8, lora_rank_pattern={"q_proj": 32}, lora_alpha_pattern={"q_proj": 64})
    assert judge_adapted(made.model) == VllmVerdict((), ("start it with --max-lora-rank 32",))


@pytest.mark.parametrize(("rank", "asked"), [(16, None), (17, 32), (64, 64), (300, 320)])
def test_ranks_beyond_its_default_need_an_option(rank, asked):
    found = judge_adapted(adapted(lora_rank=rank, lora_target=("q_proj",)).model)
    assert found.cautions == (() if asked is None else (f"start it with --max-lora-rank {asked}",))


def test_the_rank_that_is_saved_counts_and_not_the_one_in_training(tmp_path):
    config = AdapterConfig(init_lora_weights="pissa", lora_rank=12, lora_target=("q_proj",))
    model = apply_adapters(tiny_model(), config, [], trained_dtype=torch.float32, is_trainable=True).model
    expected = judge_adapted(model)
    compute_first_weights(model, config, [], lambda batch: torch.zeros(()))
    model.save_pretrained(tmp_path)
    assert judge_saved(tmp_path) == expected == VllmVerdict((), ("start it with --max-lora-rank 32",))
    assert judge_saved(tmp_path).render_advice("out") == (
        "To serve this adapter with vLLM: start it with --max-lora-rank 32."
    )


@pytest.mark.parametrize(
    ("kind", "caution"),
    [
        ({"family": "qwen3_moe", "overrides": EXPERTS}, "adapters on fused experts need a recent version of it"),
        ({"lora_target": ("q_proj", "embed_tokens")}, "the embedding or the head work for some families alone"),
        ({"lora_target": ("q_proj", "lm_head"), "tied": False}, "the embedding or the head work for some families"),
    ],
    ids=["experts", "embedding", "head"],
)
def test_what_only_some_versions_can_do_is_said(kind, caution):
    found = judge_adapted(adapted(**kind).model)
    assert found.obstacles == ()
    assert any(caution in each for each in found.cautions)


@pytest.mark.parametrize("settings", [{}, {"use_dora": True}, {"modules_to_save": ["norm"]}, {"bias": "lora_only"}])
def test_a_folder_is_judged_as_the_model_that_was_saved_into_it(tmp_path, settings):
    model = get_peft_model(tiny_model("qwen2"), LoraConfig(r=4, target_modules=["q_proj"], **settings))
    model.save_pretrained(tmp_path)
    found = judge_saved(tmp_path)
    assert found == judge_adapted(model)
    assert bool(found.obstacles) == bool(settings)


def test_weights_of_an_unknown_kind_are_named():
    settings = LoraConfig(r=4, target_modules=["q_proj"]).to_dict() | {"peft_type": "LORA"}
    names = ["base_model.model.model.layers.0.q_proj.lora_A.weight", "base_model.model.model.layers.0.q_proj.lora_C"]
    assert judge(settings, names).obstacles == (f"it knows no weight such as {names[1]}",)


def test_advice_names_the_command_that_merges():
    verdict = judge({**LoraConfig(r=4, use_dora=True).to_dict(), "peft_type": "LORA"}, [])
    assert verdict.render_advice("outputs/run") == (
        "vLLM cannot serve this adapter: it has no DoRA. Serve the merged model: tunesmith export outputs/run MERGED"
    )
