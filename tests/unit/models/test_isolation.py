import pytest
import torch
from transformers import AutoModelForSequenceClassification

from tests.tiny.models import FAMILIES, tiny_model
from tunesmith.errors import ModelError
from tunesmith.models import branches
from tunesmith.models.isolation import check_isolation, find_shared_prefix_obstacle
from tunesmith.models.segments import SEGMENTS


@pytest.mark.parametrize("layout", ["flat", "padded"])
@pytest.mark.parametrize("implementation", [SEGMENTS, "sdpa", "eager"])
def test_isolating_attention_passes_the_check_and_the_model_is_left_alone(implementation, layout):
    model = tiny_model("llama").train()
    model.set_attn_implementation(implementation)
    check_isolation(model, layout)
    assert model.training


def test_attention_that_mixes_samples_is_refused():
    model = tiny_model("llama")
    model.set_attn_implementation("sdpa")
    inner = model.forward

    def with_mask_of_ones(input_ids, **kwargs):  # makes transformers forget that the row is packed
        return inner(input_ids=input_ids, attention_mask=torch.ones_like(input_ids), **kwargs)

    model.forward = with_mask_of_ones
    with pytest.raises(ModelError, match=r"'sdpa' packed samples of LlamaForCausalLM see each other.*packing: false"):
        check_isolation(model, "padded")


@pytest.mark.parametrize("family", FAMILIES)
def test_shared_prompts_pass_the_check_in_every_family_and_the_model_is_left_alone(family):
    model = tiny_model(family).train()
    model.set_attn_implementation(SEGMENTS)
    assert find_shared_prefix_obstacle(model) == ""
    assert model.training


def test_models_without_a_vocabulary_are_checked_by_their_hidden_states():
    model = tiny_reward_model()
    model.set_attn_implementation(SEGMENTS)
    check_isolation(model, "flat")
    assert find_shared_prefix_obstacle(model) == ""


def test_attention_that_knows_nothing_of_branches_is_found_out():
    model = tiny_model("llama")
    model.set_attn_implementation("sdpa")
    assert "with 'sdpa' completions of LlamaForCausalLM behind a shared prompt" in find_shared_prefix_obstacle(model)


def test_branches_that_see_each_other_are_found_out(monkeypatch):
    model = tiny_model("llama")
    model.set_attn_implementation(SEGMENTS)
    monkeypatch.setattr(branches, "check_branches", lambda *_, **__: None)
    inner = model.forward
    merged = lambda groups: [(*(0 for _ in group[:-1]), sum(group)) for group in groups]  # noqa: E731
    model.forward = lambda branch_lengths=None, **kwargs: inner(
        **kwargs, **({} if branch_lengths is None else {"branch_lengths": merged(branch_lengths)})
    )
    assert "changing one moves" in find_shared_prefix_obstacle(model)


def tiny_reward_model():
    config = tiny_model("llama").config
    config.num_labels = 1
    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_config(config).eval()
