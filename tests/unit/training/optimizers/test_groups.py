import sys
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from tests.tiny.models import tiny_model
from tests.tiny.training import tiny_trainer, uneven_rows
from tunesmith.errors import ModelError
from tunesmith.training.optimizers import LoraPlusRates, build_parameter_groups


def names_by_group(model, **options):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = build_parameter_groups(model.named_parameters(), learning_rate=1e-3, weight_decay=0.1, **options)
    return {(group["lr"], group["weight_decay"]): {names[id(p)] for p in group["params"]} for group in groups}


def test_matrices_decay_and_vectors_do_not():
    model = nn.ModuleDict({"norm": nn.LayerNorm(4), "linear": nn.Linear(4, 4), "embedding": nn.Embedding(3, 4)})
    assert names_by_group(model) == {
        (1e-3, 0.1): {"linear.weight", "embedding.weight"},
        (1e-3, 0.0): {"norm.weight", "norm.bias", "linear.bias"},
    }


def test_both_lora_factors_decay_and_dora_magnitudes_do_not():
    model = get_peft_model(tiny_model("llama"), LoraConfig(r=2, target_modules=["q_proj"], use_dora=True))
    groups = names_by_group(model)
    decayed, kept = groups[1e-3, 0.1], groups[1e-3, 0.0]
    assert any("lora_A" in name for name in decayed)
    assert any("lora_B" in name for name in decayed)
    assert kept
    assert all("lora_magnitude_vector" in name for name in kept)


def test_frozen_parameters_are_left_out():
    model = nn.Linear(2, 2)
    model.weight.requires_grad_(False)
    assert names_by_group(model) == {(1e-3, 0.0): {"bias"}}


def test_lora_plus_trains_b_faster_and_embeddings_at_their_own_rate():
    config = LoraConfig(r=2, target_modules=["q_proj", "embed_tokens"])
    groups = names_by_group(
        get_peft_model(tiny_model("llama", tied=False), config), lora_plus=LoraPlusRates(16.0, 1e-6)
    )
    assert all("lora_B" in name for name in groups[1e-3 * 16.0, 0.1])
    assert all("lora_embedding_B" in name for name in groups[1e-6, 0.1])
    assert all("lora_A" in name or "lora_embedding_A" in name for name in groups[1e-3, 0.1])
    assert sum(map(len, groups.values())) == 2 * 2 + 2


def test_the_schedule_keeps_the_ratio_of_rates(tmp_path):
    model = get_peft_model(tiny_model("llama"), LoraConfig(r=2, target_modules=["q_proj"]))
    trainer = tiny_trainer(
        tmp_path,
        uneven_rows(8),
        model=model,
        plan={"lora_plus": LoraPlusRates(4.0, 1e-6)},
        learning_rate=0.1,
        lr_scheduler_type="linear",
    )
    trainer.train()
    rates = sorted({group["initial_lr"] for group in trainer.optimizer.param_groups})
    assert rates == [0.1, 0.4]


def test_weight_decay_shrinks_a_matrix_and_leaves_a_norm(tmp_path):
    model = tiny_model("llama")
    rows = uneven_rows(2)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():  # no gradient at all: only decay moves weights
        parameter.register_hook(torch.zeros_like)
    tiny_trainer(tmp_path, rows, model=model, weight_decay=0.1, learning_rate=0.5).train()
    after = dict(model.named_parameters())
    torch.testing.assert_close(after["model.embed_tokens.weight"], before["model.embed_tokens.weight"] * 0.95)
    torch.testing.assert_close(after["model.norm.weight"], before["model.norm.weight"])


class _Manager:
    """Stands in for bitsandbytes' list of overrides."""

    def __init__(self):
        self.overrides = []

    def register_module_override(self, module, name, settings):
        self.overrides.append((module, name, settings))


def test_embeddings_keep_exact_states_in_8_bit_optimizers(tmp_path, monkeypatch):
    manager = _Manager()
    optim = SimpleNamespace(GlobalOptimManager=SimpleNamespace(get_instance=lambda: manager))
    monkeypatch.setitem(sys.modules, "bitsandbytes", SimpleNamespace(optim=optim))

    class Adam8bit(torch.optim.SGD):
        def __init__(self, groups, *, lr, optim_bits):
            super().__init__(groups, lr=lr)

    Adam8bit.__module__ = "bitsandbytes.optim.adamw"
    trainer = tiny_trainer(tmp_path, uneven_rows(2))
    for bits, expected in ((32, 0), (8, 1)):
        trainer.optimizer = None
        options = {"lr": 0.1, "optim_bits": bits}
        monkeypatch.setattr(trainer, "get_optimizer_cls_and_kwargs", lambda *_, given=options: (Adam8bit, given))
        trainer.create_optimizer()
        assert len(manager.overrides) == expected
    assert manager.overrides == [(trainer.model.get_input_embeddings(), "weight", {"optim_bits": 32})]


def test_patterns_give_parameters_rates_of_their_own():
    model = get_peft_model(tiny_model("llama", tied=False), LoraConfig(r=2, target_modules=["q_proj"]))
    model.requires_grad_(True)
    groups = build_parameter_groups(
        model.named_parameters(),
        learning_rate=0.1,
        weight_decay=0.0,
        lora_plus=LoraPlusRates(4.0, 1e-6),
        rates={"adapters": 0.3, "embeddings": 0.01, r"layers\.1\.mlp": 0.02},
        head=model.get_base_model().get_output_embeddings(),
    )
    rates = {id(value): group["lr"] for group in groups for value in group["params"]}
    found = {name: rates[id(value)] for name, value in model.named_parameters()}
    prefix = "base_model.model."
    assert found[f"{prefix}model.layers.0.self_attn.q_proj.lora_B.default.weight"] == 0.3  # before LoRA+
    assert found[f"{prefix}model.embed_tokens.weight"] == found[f"{prefix}lm_head.weight"] == 0.01
    assert found[f"{prefix}model.layers.1.mlp.up_proj.weight"] == 0.02
    assert found[f"{prefix}model.layers.0.mlp.up_proj.weight"] == 0.1


def test_a_pattern_that_is_nowhere_is_refused():
    with pytest.raises(ModelError, match="learning_rate_groups: 'vision_tower' is found in no name"):
        build_parameter_groups(
            tiny_model("llama").named_parameters(), learning_rate=0.1, weight_decay=0.0, rates={"vision_tower": 1e-5}
        )
