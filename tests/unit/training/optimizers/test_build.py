"""Every optimizer takes steps, learns, and (where its package can) goes on from a checkpoint as if nothing had been."""

import importlib.util
import shutil

import pytest
import torch

from tests.tiny.runs import tiny_run, write_place
from tunesmith.config.optimizers import OPTIMIZER_INPUTS
from tunesmith.config.rules.packages import _OPTIMIZERS
from tunesmith.errors import ModelError
from tunesmith.training.run import run_training

FULL = {"finetuning_type": "full", "lora_rank": None, "learning_rate": 1e-3, "num_train_epochs": None, "max_steps": 2}
GALORE = {"use_galore": True, "galore_rank": 4, "galore_update_interval": 1}
APOLLO = {"use_apollo": True, "apollo_rank": 4, "apollo_scale": 1.0, "apollo_update_interval": 1}

SLOW = pytest.mark.slow  # one of a kind is enough for every day

KINDS = [
    pytest.param(GALORE, "galore_torch", id="galore"),
    pytest.param({**GALORE, "optim": "adafactor"}, "galore_torch", id="galore-adafactor", marks=SLOW),
    pytest.param({**GALORE, "galore_proj_type": "full"}, "galore_torch", id="galore-both-sides", marks=SLOW),
    pytest.param(
        {**GALORE, "galore_layerwise": True, "max_grad_norm": 0}, "galore_torch", id="galore-layerwise", marks=SLOW
    ),
    pytest.param(APOLLO, "apollo_torch", id="apollo"),
    pytest.param({**APOLLO, "apollo_proj": "svd"}, "apollo_torch", id="apollo-svd", marks=SLOW),
    pytest.param(
        {**APOLLO, "apollo_layerwise": True, "max_grad_norm": 0}, "apollo_torch", id="apollo-layerwise", marks=SLOW
    ),
    pytest.param({"use_adam_mini": True}, "adam_mini", id="adam-mini"),
    pytest.param({"use_muon": True}, "torch", id="muon"),
    pytest.param({"optim": "came"}, "came_pytorch", id="came"),
    pytest.param({"optim": "lomo", "max_grad_norm": 0, "learning_rate": 0.1}, "lomo_optim", id="lomo"),
    pytest.param({"optimizer_in_backward": True, "max_grad_norm": 0}, "torch", id="in-backward"),
    pytest.param({"optim": "schedule_free_adamw", "lr_scheduler_type": "constant"}, "schedulefree", id="schedule-free"),
    pytest.param({"optim": "stable_adamw"}, "optimi", id="stable-adamw"),
    pytest.param({"optim": "adamw_8bit"}, "bitsandbytes", id="8-bit"),
    pytest.param({"optim": "adamw_torch_8bit"}, "torchao", id="torchao-8-bit", marks=SLOW),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return write_place(tmp_path_factory.mktemp("optimizers"), num_rows=8)


def run(place, out, **settings):
    return run_training(tiny_run(place, output_dir=str(out), **{**FULL, **settings})).trainer


def weights_of(trainer):
    return {name: value.detach().clone() for name, value in trainer.model.named_parameters()}


@pytest.mark.parametrize(("settings", "package"), KINDS)
def test_two_steps_change_the_weights_and_a_resumed_run_ends_at_the_same(place, tmp_path, settings, package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    out = tmp_path / "out"
    begun = run(place, out, save_steps=1, **settings)
    losses = [line["loss"] for line in begun.state.log_history if "loss" in line]
    assert losses
    whole = weights_of(begun)
    shutil.rmtree(out / "checkpoint-2")
    resumed = weights_of(run(place, out, save_steps=1, resume_from_checkpoint=True, **settings))
    start = run_start(place)
    moved = max((whole[name] - start[name]).abs().max().item() for name in whole)
    assert moved > 1e-5
    for name, value in whole.items():
        torch.testing.assert_close(resumed[name], value, atol=1e-6, rtol=1e-5, msg=f"{name} differs")


ON_CPU = [name for name in OPTIMIZER_INPUTS if not name.startswith("paged_") and name not in ("adalomo", "grokadamw")]
"""Names of `optim` that run here and can go on; the others are refused on a CPU, or on resuming."""


@SLOW
@pytest.mark.parametrize("name", ON_CPU)
def test_every_name_of_optim_goes_on_from_a_checkpoint_to_the_same_bits(place, tmp_path, name):
    if name in _OPTIMIZERS and importlib.util.find_spec(_OPTIMIZERS[name]) is None:
        pytest.skip(f"{_OPTIMIZERS[name]} is not installed")
    out, settings = tmp_path / "out", {"optim": name, "max_steps": 3, "save_steps": 1}
    if name == "lomo":
        settings["max_grad_norm"] = 0
    whole = weights_of(run(place, out, **settings))
    for step in (2, 3):
        shutil.rmtree(out / f"checkpoint-{step}")
    resumed = weights_of(run(place, out, resume_from_checkpoint=True, **settings))
    for key, value in whole.items():
        torch.testing.assert_close(resumed[key], value, atol=0, rtol=0, msg=f"{name}: {key} differs")


def run_start(place):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(place / "model", dtype=torch.float32)
    return {name: value.detach() for name, value in model.named_parameters()}


@pytest.mark.parametrize("settings", [{}, {"badam_mode": "ratio"}], ids=["layers", "ratio"])
def test_badam_trains_one_block_at_a_time(place, tmp_path, settings, capsys):
    pytest.importorskip("badam")
    trained = weights_of(run(place, tmp_path / "out", use_badam=True, save_strategy="no", **settings))
    start = run_start(place)
    changed = {name for name in start if not torch.equal(trained[name], start[name])}
    if settings:
        share = sum((trained[name] != start[name]).sum().item() for name in changed) / sum(
            value.numel() for value in start.values()
        )
        assert 0.0 < share < 0.2
    else:
        assert changed
        assert all(name.startswith("model.layers.0.") for name in changed)
    assert "trainable" not in capsys.readouterr().out  # the package prints; here it is logged


def test_badam_names_a_block_that_is_not_there(place, tmp_path):
    pytest.importorskip("badam")
    with pytest.raises(ModelError, match="badam_start_block: 2, but the blocks are 0 to 1"):
        run(place, tmp_path / "out", use_badam=True, badam_start_block=2)


def test_badam_does_not_know_every_family(place):
    pytest.importorskip("badam")
    from tests.tiny.models import tiny_model
    from tunesmith.training.optimizers.blockwise import build_badam

    model = tiny_model("gpt2", n_embd=32, n_head=4, n_layer=2)
    with pytest.raises(ModelError, match=r"this family calls them transformer\.h\. Set badam_mode: ratio"):
        build_badam(model, tiny_run(place, **FULL, use_badam=True).training, [])


def test_grokadamw_takes_steps(place, tmp_path):
    pytest.importorskip("grokadamw")
    trained, start = weights_of(run(place, tmp_path / "out", save_strategy="no", optim="grokadamw")), run_start(place)
    assert any(not torch.equal(trained[name], start[name]) for name in start)


def test_updating_in_the_backward_pass_gives_the_same_weights_as_afterwards(place, tmp_path):
    common = {"save_strategy": "no", "max_grad_norm": 0, "optim": "adamw_torch", "weight_decay": 0.1}
    after = weights_of(run(place, tmp_path / "after", **common))
    during = run(place, tmp_path / "during", optimizer_in_backward=True, **common)
    for name, value in weights_of(during).items():
        torch.testing.assert_close(value, after[name], atol=1e-7, rtol=1e-6)
    assert all(parameter.grad is None for parameter in during.model.parameters())


def test_galore_projects_linear_layers_alone(place, tmp_path):
    pytest.importorskip("galore_torch")
    trainer = run(place, tmp_path / "out", save_strategy="no", **GALORE, galore_target="q_proj,down_proj")
    inner = trainer.optimizer.optimizer
    projected = [value for group in inner.param_groups if "rank" in group for value in group["params"]]
    names = {name for name, value in trainer.model.named_parameters() if any(value is each for each in projected)}
    assert names == {
        f"model.layers.{n}.{part}.weight" for n in range(2) for part in ("self_attn.q_proj", "mlp.down_proj")
    }
    means = inner.state[projected[0]]["exp_avg"]
    assert min(means.shape) == 4  # the rank, not the width


def test_a_target_that_is_nowhere_is_refused(place, tmp_path):
    pytest.importorskip("galore_torch")
    with pytest.raises(ModelError, match=r"galore_target: 'c_attn' is in no name of a linear layer.*q_proj, k_proj"):
        run(place, tmp_path / "out", **GALORE, galore_target="c_attn")


def test_a_target_that_is_not_trained_is_refused(place, tmp_path):
    pytest.importorskip("galore_torch")
    settings = {"finetuning_type": "freeze", "freeze_trainable_modules": "mlp", "galore_target": "q_proj"}
    with pytest.raises(ModelError, match="galore_target: q_proj names no linear layer that is trained"):
        run(place, tmp_path / "out", **GALORE, **settings)


def test_muon_takes_the_matrices_of_layers_and_adamw_the_rest(place, tmp_path):
    trainer = run(place, tmp_path / "out", save_strategy="no", use_muon=True)
    muon, adamw = trainer.optimizer.optimizer.members
    assert type(muon) is torch.optim.Muon
    names = {id(value): name for name, value in trainer.model.named_parameters()}
    by_muon = [names[id(value)] for group in muon.param_groups for value in group["params"]]
    by_adamw = [names[id(value)] for group in adamw.param_groups for value in group["params"]]
    assert len(by_muon) == 14
    assert all("proj" in name for name in by_muon)
    assert "model.embed_tokens.weight" in by_adamw
    assert all("norm" in name or "embed" in name for name in by_adamw)


def test_schedules_reach_every_part_of_a_set(place, tmp_path):
    trainer = run(place, tmp_path / "out", save_strategy="no", use_muon=True, lr_scheduler_type="linear", max_steps=4)
    rates = {group["lr"] for member in trainer.optimizer.optimizer.members for group in member.param_groups}
    assert rates == {0.0}


def test_adam_mini_keeps_one_second_mean_for_each_head(place, tmp_path):
    pytest.importorskip("adam_mini")
    trainer = run(place, tmp_path / "out", save_strategy="no", use_adam_mini=True)
    inner = trainer.optimizer.optimizer
    state = {group["name"]: inner.state[group["params"][0]] for group in inner.param_groups}
    assert state["model.layers.0.self_attn.q_proj.weight"]["vmean"].shape == (4, 1)
    assert state["model.layers.0.self_attn.k_proj.weight"]["vmean"].shape == (2, 1)
    assert state["model.layers.0.mlp.up_proj.weight"]["vmean"].shape == (64, 1)
    assert inner.world_size == 1
    assert [g["weight_decay"] for g in inner.param_groups if "norm" in g["name"]] == [0.0] * 5


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer_in_backward": True, "max_grad_norm": 0},
        {"optim": "lomo", "max_grad_norm": 0},
        {"use_badam": True},
    ],
    ids=str,
)
def test_what_works_in_one_process_is_refused_in_several(place, monkeypatch, settings):
    from tests.tiny.models import tiny_model
    from tunesmith.runtime.ranks import Ranks
    from tunesmith.training.optimizers import blockwise, build
    from tunesmith.training.optimizers.build import build_optimizer

    config = tiny_run(place, **{**FULL, **settings})
    for module in (build, blockwise):
        monkeypatch.setattr(module, "current_ranks", lambda: Ranks(rank=0, world_size=2))
    with pytest.raises(ModelError, match=r"Start one"):
        build_optimizer(tiny_model(), config.training, lambda: (torch.optim.AdamW, {"lr": 1e-3}))


def test_muon_of_an_old_pytorch_is_refused(place, monkeypatch):
    from tests.tiny.models import tiny_model
    from tunesmith.errors import MissingDependencyError
    from tunesmith.training.optimizers.build import build_optimizer

    monkeypatch.delattr(torch.optim, "Muon")
    config = tiny_run(place, **FULL, use_muon=True)
    with pytest.raises(MissingDependencyError, match=r"PyTorch 2.9 or newer"):
        build_optimizer(tiny_model(), config.training, lambda: (torch.optim.AdamW, {"lr": 1e-3}))


def test_sparse_gradients_are_shortened_together():
    from tunesmith.training.optimizers.blockwise import shorten_sparse

    first, second, third = (torch.nn.Parameter(torch.zeros(2, 2)) for _ in range(3))
    first.grad = torch.tensor([[3.0, 0.0], [0.0, 0.0]]).to_sparse()
    second.grad = torch.tensor([[0.0, 4.0], [0.0, 0.0]])
    assert shorten_sparse([first, second, third], float("inf")).item() == 5.0
    assert second.grad[0, 1].item() == 4.0
    assert shorten_sparse([first, second, third], 1.0).item() == 5.0
    torch.testing.assert_close(first.grad.to_dense()[0, 0], torch.tensor(0.6))
    torch.testing.assert_close(second.grad[0, 1], torch.tensor(0.8))
