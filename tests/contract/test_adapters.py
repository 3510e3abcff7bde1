"""What every tuning kind keeps: it learns, is saved, goes on from what was saved, loads elsewhere, and merges."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from peft import PeftModel
from peft.utils import PeftType
from torch import Tensor, nn

from tests.contract.plain_peft import EXPECTED, IDS, logits
from tests.tiny.models import tiny_model
from tunesmith.config import AdapterConfig
from tunesmith.config.adapter import FinetuningType
from tunesmith.config.peft_methods import PEFT_METHODS, REFUSED_METHODS
from tunesmith.models.adapters import apply_adapters
from tunesmith.models.adapters.begin import compute_first_weights, needs_first_weights
from tunesmith.models.adapters.lora import find_merge_obstacle
from tunesmith.models.lean import use_lean_layers

LEARNING_RATE = 1e-2


@dataclass(frozen=True)
class Case:
    """One kind of tuning on one model."""

    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    family: str = "llama"
    overrides: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> AdapterConfig:
        return AdapterConfig(finetuning_type=self.kind, **self.settings)

    def base(self) -> nn.Module:
        return tiny_model(self.family, **self.overrides)


def option(**options: Any) -> dict[str, Any]:
    return {"adapter_options": options}


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}

# Sizes that peft takes by default are those of real models; these fit one of 32 hidden dimensions.
SIZES: dict[str, dict[str, Any]] = {
    "c3a": option(block_size=16),
    "fourierft": option(n_frequency=50),
    "miss": option(r=4),
    "psoft": option(r=8),
    "road": option(group_size=16),
    "shira": option(r=4),
    "trainable_tokens": option(token_indices=[5, 9, 200]),
    "vblora": option(vector_length=16, num_vectors=32, topk=2),
    "waveft": option(n_frequency=50),
}

CASES = {
    **{kind: Case(kind, SIZES.get(kind, {})) for kind in PEFT_METHODS},
    "full": Case("full"),
    "freeze": Case("freeze", {"freeze_trainable_layers": 1}),
    "llama pro": Case(
        "freeze", {"use_llama_pro": True, "llama_pro_new_blocks": 1, "freeze_trainable_layers": 1}, "qwen3"
    ),
    "rslora": Case("lora", {"use_rslora": True}),
    "dora": Case("lora", {"use_dora": True}),
    "patterns": Case("lora", {"lora_rank_pattern": {"q_proj": 2}, "lora_alpha_pattern": {"down_proj": 3}}),
    "gaussian": Case("lora", {"init_lora_weights": "gaussian"}),
    "orthogonal": Case("lora", {"init_lora_weights": "orthogonal"}),
    "pissa": Case("lora", {"init_lora_weights": "pissa"}),
    "pissa, exact, rslora": Case("lora", {"init_lora_weights": "pissa", "pissa_iter": -1, "use_rslora": True}),
    "pissa, patterns": Case("lora", {"init_lora_weights": "pissa", "lora_rank_pattern": {"q_proj": 2}}),
    "pissa of transposed weights": Case(
        "lora", {"init_lora_weights": "pissa"}, "gpt2", {"n_embd": 32, "n_head": 4, "n_layer": 2}
    ),
    "olora": Case("lora", {"init_lora_weights": "olora"}),
    "eva": Case("lora", {"init_lora_weights": "eva"}),
    "lora-ga": Case("lora", {"init_lora_weights": "lora_ga"}),
    "embeddings and head": Case("lora", {"additional_target": ("embed_tokens", "lm_head")}, overrides={"tied": False}),
    "tied embeddings": Case("lora", {"additional_target": ("embed_tokens",)}),
    "experts": Case("lora", {}, "qwen3_moe", EXPERTS),
    "mixtral": Case("lora", {}, "mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "routers": Case("lora", {"lora_target": ("all", "routers")}, "qwen3_moe", EXPERTS),
    "pissa with norms": Case("lora", {"init_lora_weights": "pissa", "additional_target": ("norm",)}),
}


def build(case: Case, *, begins: bool = True) -> nn.Module:
    """Return the model as a run has it before its first step."""
    base = case.base()
    torch.manual_seed(3)
    model = apply_adapters(base, case.config, [], trained_dtype=torch.float32, is_trainable=True).model
    if begins and needs_first_weights(model):
        compute_first_weights(model, case.config, [{"input_ids": IDS, "labels": IDS}] * 2, lambda batch: loss(model))
    return model


def loss(model: nn.Module) -> Tensor:
    result: Tensor = model(input_ids=IDS, labels=IDS, use_cache=False).loss
    return result


def train(model: nn.Module, steps: int = 2) -> list[float]:
    torch.manual_seed(7)  # for methods that draw
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=0.0)
    losses = []
    for _ in range(steps):
        step = loss(model.train())
        step.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(step.item())
    return losses


@dataclass(frozen=True)
class Trained:
    """A model after its steps, and where it was saved."""

    case: Case
    model: nn.Module
    losses: list[float]
    before: dict[str, Tensor]
    folder: Path
    logits: Tensor


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train a case once, whatever is asked about it."""
    done: dict[str, Trained] = {}

    def get(name: str) -> Trained:
        if name not in done:
            case = CASES[name]
            model = build(case)
            before = {key: value.detach().clone() for key, value in model.named_parameters() if value.requires_grad}
            losses = train(model)
            folder = tmp_path_factory.mktemp("saved")
            found = logits(model)
            model.save_pretrained(folder)
            done[name] = Trained(case, model, losses, before, folder, found)
        return done[name]

    return get


ADAPTERS = [name for name, case in CASES.items() if case.kind in PEFT_METHODS]


def test_every_method_of_the_library_is_offered_or_refused_with_a_reason():
    assert sorted([*PEFT_METHODS, *REFUSED_METHODS]) == sorted(kind.value.lower() for kind in PeftType)
    assert all(REFUSED_METHODS.values())
    assert sorted(get_args(FinetuningType)) == sorted(["full", "freeze", *PEFT_METHODS])


@pytest.mark.parametrize("name", CASES)
def test_what_is_trained_changes_and_the_loss_falls(trained, name):
    found = trained(name)
    now = dict(found.model.named_parameters())
    assert found.before
    assert [key for key, value in found.before.items() if torch.equal(value, now[key])] == []
    # Where the steps are tiny by design, or drawn at random, two of them show little.
    assert found.losses[1] < found.losses[0] or name in {"pvera", "unilora"}


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_saved_adapter_gives_the_same_logits_on_a_fresh_model(trained, name):
    found = trained(name)
    fresh = apply_adapters(
        found.case.base(), AdapterConfig(), [str(found.folder)], trained_dtype=torch.float32, is_trainable=False
    )
    torch.testing.assert_close(logits(fresh.model), found.logits, atol=1e-4, rtol=1e-4)
    assert fresh.notes == () or all("merged" in note for note in fresh.notes)
    is_apart = find_merge_obstacle(str(found.folder)) is not None
    assert isinstance(fresh.model, PeftModel) == is_apart


@pytest.mark.parametrize("name", [name for name in ADAPTERS if not PEFT_METHODS[CASES[name].kind].resume_obstacle])
def test_training_goes_on_from_a_saved_adapter_as_if_it_had_not_stopped(trained, name):
    found = trained(name)
    resumed = build(found.case, begins=False)
    resumed.load_adapter(str(found.folder), "default", is_trainable=True)
    torch.testing.assert_close(logits(resumed), found.logits, atol=0, rtol=0)
    assert train(resumed) == train(found.model)


@pytest.mark.parametrize("name", ADAPTERS)
def test_lean_layers_compute_the_same_beside_every_method(name):
    model = build(CASES[name]).train()
    torch.manual_seed(7)  # for methods that draw
    expected = loss(model).item()
    use_lean_layers(model)
    torch.manual_seed(7)
    assert loss(model).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.processes
def test_plain_peft_reads_every_adapter_in_another_process(trained, tmp_path):
    work = []
    for name in ADAPTERS:
        found = trained(name)
        torch.save(found.logits, found.folder / EXPECTED)
        case = {"family": found.case.family, "overrides": found.case.overrides}
        work.append({"name": name, "folder": str(found.folder), **case})
    (tmp_path / "work.json").write_text(json.dumps(work), encoding="utf-8")
    command = [sys.executable, "-m", "tests.contract.plain_peft", str(tmp_path / "work.json")]
    root = Path(__file__).parents[2]
    finished = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
