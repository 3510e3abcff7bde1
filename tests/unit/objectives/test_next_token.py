import math

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.tiny.models import tiny_model
from tunesmith.config.objective import ObjectiveConfig
from tunesmith.models.heads import resolve_head
from tunesmith.objectives.next_token import NextTokenObjective
from tunesmith.objectives.registry import ObjectiveParts, build_objective

IGNORED = -100


def labelled_batch(seed=0, rows=3, tokens=11):
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 420, (rows, tokens), generator=rng)
    labels = ids.clone()
    labels[torch.rand(labels.shape, generator=rng) < 0.5] = IGNORED
    labels[0, -1] = ids[0, -1]
    return {"input_ids": ids, "labels": labels}


def plain_loss(model, batch):
    logits = model(input_ids=batch["input_ids"], use_cache=False).logits[:, :-1].flatten(0, 1).float()
    labels = batch["labels"][:, 1:].flatten()
    return torch.nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def check_against_the_plain_loss(model, objective, batch):
    model.train()
    result = objective.compute(model, batch)
    expected = plain_loss(model, batch)
    assert result.items.item() == (batch["labels"][:, 1:] != IGNORED).sum().item()
    assert abs(result.total.item() - expected.item()) <= 1e-5 * abs(expected.item())
    scale = 1 / result.items.item()
    ours, theirs = gradients(model, result.total * scale), gradients(model, expected * scale)
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert (ours[name] - theirs[name]).abs().max().item() < 1e-5, name


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2", "cohere", "granite"])
def test_loss_and_gradients_equal_the_plain_loss(family, tied):
    model = tiny_model(family, tied=tied)
    check_against_the_plain_loss(model, NextTokenObjective(resolve_head(model), chunk_tokens=4), labelled_batch())


@pytest.mark.parametrize(
    "adapter",
    [
        {"target_modules": "all-linear"},
        {"target_modules": ["q_proj", "lm_head"]},
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head", "embed_tokens"]},
    ],
)
def test_adapters_train_as_with_the_plain_loss(adapter):
    model = get_peft_model(tiny_model("llama", tied=False), LoraConfig(r=2, task_type="CAUSAL_LM", **adapter))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    check_against_the_plain_loss(model, NextTokenObjective(resolve_head(model), chunk_tokens=4), labelled_batch())


def test_a_head_that_cannot_be_taken_apart_falls_back_to_whole_logits():
    model = tiny_model("llama")
    head = resolve_head(model)
    whole = type(head)(head.module, head.decoder, head.logit_transform, is_separable=False, reason="for a test")
    check_against_the_plain_loss(model, NextTokenObjective(whole), labelled_batch())


def test_count_agrees_with_what_is_summed():
    model = tiny_model("llama")
    objective = NextTokenObjective(resolve_head(model))
    batch = labelled_batch(3)
    assert objective.count_items(batch).item() == objective.compute(model, batch).items.item()


def test_rows_without_labels_give_zero_and_a_backward_pass():
    model = tiny_model("llama").train()
    batch = labelled_batch()
    batch["labels"] = torch.full_like(batch["labels"], IGNORED)
    result = NextTokenObjective(resolve_head(model)).compute(model, batch)
    result.total.backward()
    assert result.items.item() == 0
    assert result.total.item() == 0.0


def test_evaluation_is_the_plain_loss_with_correct_tokens():
    model = tiny_model("llama").eval()
    batch = labelled_batch()
    objective = NextTokenObjective(resolve_head(model), label_smoothing=0.2, z_loss=0.1)
    with torch.no_grad():
        result = objective.compute(model, batch)
        logits = model(input_ids=batch["input_ids"], use_cache=False).logits[:, :-1]
    labels = batch["labels"][:, 1:]
    assert result.metrics["correct"].item() == ((logits.argmax(-1) == labels) & (labels != IGNORED)).sum().item()
    torch.testing.assert_close(result.total, plain_loss(model, batch).detach())


def test_smoothing_raises_the_training_loss():
    model = tiny_model("llama").train()
    head, batch = resolve_head(model), labelled_batch()
    plain = NextTokenObjective(head).compute(model, batch).total
    smoothed = NextTokenObjective(head, z_loss=1.0).compute(model, batch).total
    assert smoothed.item() > plain.item() + 1.0


def test_mixture_of_experts_trains_its_routers():
    model = tiny_model(
        "mixtral", num_local_experts=4, num_experts_per_tok=2, output_router_logits=True, router_aux_loss_coef=0.1
    ).train()
    batch = labelled_batch()
    settings = model.config.to_dict()
    with_router, without = (
        build_objective(
            ObjectiveParts(config=ObjectiveConfig(), head=resolve_head(model), model_settings=each)
        ).compute(model, batch)
        for each in (settings, {})
    )
    aux = model(input_ids=batch["input_ids"], use_cache=False).aux_loss
    expected = 0.1 * aux.item() * with_router.items.item()
    assert math.isclose(with_router.total.item() - without.total.item(), expected, rel_tol=1e-3)


def test_settings_reach_the_objectives_of_tokens():
    head = resolve_head(tiny_model("llama"))
    for stage in ("pt", "sft"):
        config = ObjectiveConfig(stage=stage, label_smoothing_factor=0.1, z_loss=0.01, head_chunk_tokens=64)
        objective = build_objective(ObjectiveParts(config=config, head=head))
        assert (objective.label_smoothing, objective.z_loss, objective.chunk_tokens) == (0.1, 0.01, 64)
