"""Every loss against the value that TRL computes, and against what the papers say by hand."""

import ast
import inspect
import math
import textwrap
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as in the code that is run here
from trl.experimental.cpo.cpo_trainer import CPOTrainer
from trl.experimental.orpo.orpo_trainer import ORPOTrainer
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.kto_trainer import KTOTrainer
from trl.trainer.reward_trainer import RewardTrainer

from tunesmith.config.preference import PREFERENCE_LOSSES, PreferenceConfig
from tunesmith.objectives.losses import preference as losses
from tunesmith.objectives.preference import CHOSEN_MEAN, PAIR_LOSSES, REJECTED_MEAN, PairScores

PAIRS = 64
LENGTHS = torch.randint(1, 40, (2 * PAIRS,), generator=torch.Generator().manual_seed(3))
BETA, SMOOTHING, TAU, GAMMA = 0.3, 0.15, 0.05, 0.7

OF_TRL = {
    "sigmoid": "sigmoid",
    "hinge": "hinge",
    "ipo": "ipo",
    "robust": "robust",
    "exo": "exo_pair",
    "apo_zero": "apo_zero",
    "apo_down": "apo_down",
    "sppo": "sppo_hard",
    "bco_pair": "bco_pair",
    "discopop": "discopop",
}


def log_probabilities(seed, spread=0.6):
    """Sums over the tokens of each completion: policy chosen, rejected, and reference chosen, rejected."""
    rng = torch.Generator().manual_seed(seed)
    per_token = -torch.rand(2, 2 * PAIRS, generator=rng) * spread
    policy, reference = per_token * LENGTHS
    return policy[0::2], policy[1::2], reference[0::2], reference[1::2]


def scores(seed=0):
    chosen, rejected, reference_chosen, reference_rejected = log_probabilities(seed)
    ratios = chosen - reference_chosen, rejected - reference_rejected
    return PairScores(
        chosen=ratios[0],
        rejected=ratios[1],
        chosen_mean=chosen / LENGTHS[0::2],
        rejected_mean=rejected / LENGTHS[1::2],
        mean_margins=ratios[0] / LENGTHS[0::2] - ratios[1] / LENGTHS[1::2],
        step_means={CHOSEN_MEAN: ratios[0].mean(), REJECTED_MEAN: ratios[1].mean()},
    )


def config(name, **settings):
    chosen = {
        "pref_beta": BETA,
        "simpo_gamma": GAMMA,
        "discopop_tau": TAU,
        "dpo_label_smoothing": SMOOTHING,
        **settings,
    }
    return PreferenceConfig(pref_loss=(name,), **chosen)


def ours(name, **settings):
    return PAIR_LOSSES[name](scores(), config(name, **settings))


def statements_of(function):
    """All statements of a function of TRL, loops and branches included."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def run_statements(statements, known):
    """Run the very lines of TRL on our numbers, and return what is known afterwards."""
    module = ast.fix_missing_locations(ast.Module(body=statements, type_ignores=[]))
    exec(compile(module, "trl", "exec"), known)
    return known


def trl_dpo_losses(loss_type):
    (loop,) = [
        node
        for node in statements_of(DPOTrainer._compute_loss)
        if isinstance(node, ast.For) and "loss_weight" in ast.unparse(node.target)
    ]
    chosen, rejected, reference_chosen, reference_rejected = log_probabilities(0)
    mask = torch.zeros(2 * PAIRS, int(LENGTHS.max()))
    order = torch.cat([LENGTHS[0::2], LENGTHS[1::2]])  # TRL has all chosen completions first
    for row, length in zip(mask, order.tolist(), strict=True):
        row[:length] = 1
    known = {
        "torch": torch,
        "F": F,
        "loss_type": loss_type,
        "device": "cpu",
        "completion_mask": mask,
        "chosen_logratios": chosen - reference_chosen,
        "rejected_logratios": rejected - reference_rejected,
        "self": SimpleNamespace(beta=BETA, label_smoothing=SMOOTHING, args=SimpleNamespace(discopop_tau=TAU)),
    }
    known["chosen_scores"], known["rejected_scores"] = known["chosen_logratios"], known["rejected_logratios"]
    known["delta_score"] = known["chosen_scores"] - known["rejected_scores"]
    return run_statements([loop.body[0]], known)["per_sequence_loss"]


def test_every_name_has_a_loss():
    assert set(PAIR_LOSSES) == set(PREFERENCE_LOSSES)


@pytest.mark.parametrize("name", OF_TRL)
def test_losses_of_log_ratios_have_the_values_of_trl(name):
    settings = {"dpo_label_smoothing": 0.0} if name == "sigmoid" else {}  # TRL leaves smoothing to `robust`
    torch.testing.assert_close(ours(name, **settings), trl_dpo_losses(OF_TRL[name]), atol=1e-6, rtol=1e-6)


def trl_cpo(loss_type, chosen, rejected):
    trainer = SimpleNamespace(
        alpha=0.0,
        beta=BETA,
        loss_type=loss_type,
        simpo_gamma=GAMMA,
        label_smoothing=SMOOTHING if loss_type == "sigmoid" else 0.0,
        accelerator=SimpleNamespace(device="cpu"),
    )
    return CPOTrainer.cpo_loss(trainer, chosen, rejected)[0]


def test_cpo_and_simpo_have_the_values_of_trl():
    chosen, rejected, *_ = log_probabilities(0)
    found = losses.cpo_loss(chosen, rejected, beta=BETA, label_smoothing=SMOOTHING)
    torch.testing.assert_close(found, trl_cpo("sigmoid", chosen, rejected), atol=1e-6, rtol=1e-6)
    means = scores()
    expected = trl_cpo("simpo", means.chosen_mean, means.rejected_mean)
    torch.testing.assert_close(ours("simpo"), expected, atol=1e-6, rtol=1e-6)


def test_smoothing_of_sigmoid_has_the_value_that_trl_gives_a_reference_of_zero():
    """TRL smooths only CPO, which is DPO against nothing."""
    margins = scores().margins
    expected = trl_cpo("sigmoid", margins, torch.zeros_like(margins))
    torch.testing.assert_close(ours("sigmoid"), expected, atol=1e-6, rtol=1e-6)


def test_cpo_adds_the_cross_entropy_of_the_chosen_completion_per_token():
    both = scores()
    preference = losses.cpo_loss(both.chosen, both.rejected, beta=BETA, label_smoothing=SMOOTHING)
    torch.testing.assert_close(ours("cpo"), preference - both.chosen_mean)


def test_orpo_has_the_value_of_trl():
    means = scores()
    trainer = SimpleNamespace(beta=BETA, accelerator=SimpleNamespace(device="cpu"))
    ratio = ORPOTrainer.odds_ratio_loss(trainer, means.chosen_mean, means.rejected_mean)[0]
    torch.testing.assert_close(ours("orpo"), -means.chosen_mean - ratio, atol=1e-6, rtol=1e-6)


def test_kto_on_pairs_compares_with_the_mean_of_the_other_kind():
    """By the words of the paper, row by row."""
    both = scores()
    chosen_kl = max(0.0, both.chosen.double().mean().item())
    rejected_kl = max(0.0, both.rejected.double().mean().item())
    expected = [
        (1 - sigmoid(BETA * (c - rejected_kl)) + 1 - sigmoid(BETA * (chosen_kl - r))) / 2
        for c, r in zip(both.chosen.tolist(), both.rejected.tolist(), strict=True)
    ]
    torch.testing.assert_close(ours("kto_pair"), torch.tensor(expected), atol=1e-6, rtol=1e-6)


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


@pytest.mark.parametrize("kl", [-0.4, 0.0, 1.3])
def test_kto_has_the_value_of_trl(kl):
    chosen, rejected, reference_chosen, reference_rejected = log_probabilities(0)
    wanted = [
        node
        for node in statements_of(KTOTrainer._compute_loss)
        if (isinstance(node, ast.If) and "_logps.shape[0] != 0" in ast.unparse(node.test))
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "losses")
    ]
    known = {
        "torch": torch,
        "F": F,
        "kl": torch.tensor(kl).clamp(min=0),
        "chosen_logps": chosen,
        "rejected_logps": rejected,
        "ref_chosen_logps": reference_chosen,
        "ref_rejected_logps": reference_rejected,
        "self": SimpleNamespace(beta=BETA, loss_type="kto", desirable_weight=1.5, undesirable_weight=0.5),
    }
    expected = run_statements(wanted, known)["losses"]
    found = losses.kto_loss(
        torch.cat([chosen - reference_chosen, rejected - reference_rejected]),
        torch.arange(2 * PAIRS) < PAIRS,
        torch.tensor(kl),
        beta=BETA,
        desirable_weight=1.5,
        undesirable_weight=0.5,
    )
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("with_margins", [False, True])
def test_reward_losses_have_the_value_of_trl(with_margins):
    chosen, rejected, margins, _ = log_probabilities(0)
    wanted = [
        node
        for node in statements_of(RewardTrainer.compute_loss)
        if isinstance(node, ast.If)
        and ("margin" in ast.unparse(node.test) or "center_rewards_coefficient" in ast.unparse(node.test))
    ]
    known = {
        "nn": torch.nn,
        "torch": torch,
        "rewards_chosen": chosen,
        "rewards_rejected": rejected,
        "inputs": {"margin": margins} if with_margins else {},
        "self": SimpleNamespace(args=SimpleNamespace(center_rewards_coefficient=0.01)),
    }
    expected = run_statements(wanted, known)["loss"]
    found = losses.bradley_terry_loss(chosen, rejected, margins if with_margins else None)
    found = (found + 0.01 * losses.centering_loss(chosen, rejected)).mean()
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kl", [-0.4, 0.0, 1.3])
def test_kto_has_the_value_of_the_paper(kl):
    ratios = scores().chosen
    desirable = torch.arange(PAIRS) % 3 == 0
    found = losses.kto_loss(
        ratios, desirable, torch.tensor(kl), beta=BETA, desirable_weight=1.5, undesirable_weight=0.5
    )
    anchor = max(0.0, kl)
    expected = [
        1.5 * (1 - sigmoid(BETA * (ratio - anchor))) if good else 0.5 * (1 - sigmoid(BETA * (anchor - ratio)))
        for ratio, good in zip(ratios.tolist(), desirable.tolist(), strict=True)
    ]
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-6, rtol=1e-6)


def test_reward_losses_by_hand():
    chosen, rejected = torch.tensor([2.0, -1.0]), torch.tensor([1.0, 0.5])
    expected = torch.tensor([-math.log(sigmoid(1.0)), -math.log(sigmoid(-1.5))])
    torch.testing.assert_close(losses.bradley_terry_loss(chosen, rejected), expected)
    found = losses.bradley_terry_loss(chosen, rejected, torch.tensor([0.5, 0.0]))
    torch.testing.assert_close(found, torch.tensor([-math.log(sigmoid(0.5)), -math.log(sigmoid(-1.5))]))
    assert losses.centering_loss(chosen, rejected).tolist() == [9.0, 0.25]


WANTS_A_MARGIN = {"ipo", "sppo", "exo", "discopop"}  # and no more
PUSHES_BOTH_DOWN = {"apo_down"}


@pytest.mark.parametrize("name", sorted(set(PREFERENCE_LOSSES) - WANTS_A_MARGIN - PUSHES_BOTH_DOWN))
def test_a_better_chosen_completion_is_a_smaller_loss(name):
    both = scores()
    chosen_mean = both.chosen_mean.clone().requires_grad_()
    ratio = both.chosen.clone().requires_grad_()
    moved = replace(both, chosen=ratio, chosen_mean=chosen_mean)
    smoothing = 0.1 if name == "robust" else 0.0
    PAIR_LOSSES[name](moved, config(name, dpo_label_smoothing=smoothing)).sum().backward()
    gradient = sum(tensor.grad for tensor in (chosen_mean, ratio) if tensor.grad is not None)
    assert (gradient <= 0).all()
    assert gradient.abs().sum() > 0


def test_log1m_exp_is_exact_near_zero_and_far_away():
    values = torch.tensor([-1e-6, -0.1, -0.7, -5.0, -60.0], dtype=torch.float32, requires_grad=True)
    found = losses.log1m_exp(values)
    expected = [math.log(-math.expm1(value)) for value in values.tolist()]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-12)
    found.sum().backward()
    assert torch.isfinite(values.grad).all()


def test_certain_completions_leave_odds_finite():
    certain = torch.zeros(1, requires_grad=True)
    loss = losses.odds_ratio_loss(certain, torch.tensor([-1.0]))
    loss.backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(certain.grad).all()
