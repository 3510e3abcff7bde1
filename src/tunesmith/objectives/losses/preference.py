"""Losses of preferences: pairs of completions, rated completions, and rewards.

All of them take one number per completion or pair, of shape [pairs] or [rows], and return one loss for each, not
reduced. Words used throughout:

- `log_ratio`: log-probability of a completion under the policy minus that under the reference policy.
- `margin`: what the chosen completion of a pair has more of it than the rejected one.
- `beta`: how dear it is to leave the reference; large values keep the policy near.

Every loss falls as the chosen completion becomes more likely than the rejected one.
"""

import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody reads at once
from torch import Tensor


def sigmoid_loss(margins: Tensor, *, beta: float, label_smoothing: float = 0.0) -> Tensor:
    """DPO: `-log sigmoid(beta * margin)`.

    Rafailov et al. 2023, "Direct Preference Optimization", equation 7. With label smoothing the conservative variant
    of Mitchell 2023, "A note on DPO with noisy preferences", equation 3: that share of labels is taken to be swapped.
    """
    scaled = beta * margins
    return -(1.0 - label_smoothing) * F.logsigmoid(scaled) - label_smoothing * F.logsigmoid(-scaled)


def robust_loss(margins: Tensor, *, beta: float, label_smoothing: float) -> Tensor:
    """Robust DPO: an unbiased estimate of the loss without swapped labels.

    Chowdhury et al. 2024, "Provably Robust DPO", equation 12. `label_smoothing` is the share of swapped labels, below
    one half.
    """
    scaled = beta * margins
    clean, swapped = -F.logsigmoid(scaled), -F.logsigmoid(-scaled)
    return ((1.0 - label_smoothing) * clean - label_smoothing * swapped) / (1.0 - 2.0 * label_smoothing)


def hinge_loss(margins: Tensor, *, beta: float) -> Tensor:
    """Hinge: `max(0, 1 - beta * margin)`; pairs that are apart far enough are left alone.

    Zhao et al. 2023, "SLiC-HF", equation 1, in the form of Liu et al. 2023, "RSO", equation 8.
    """
    return torch.relu(1.0 - beta * margins)


def ipo_loss(mean_margins: Tensor, *, beta: float) -> Tensor:
    """IPO: `(margin - 1 / (2 beta))^2`; the margin is to be that wide, and no wider.

    Azar et al. 2023, "A General Theoretical Paradigm to Understand Learning from Human Preferences", equation 17, with
    beta as tau. The margin is of log-ratios per token, or long completions would have to be apart further.
    """
    return (mean_margins - 1.0 / (2.0 * beta)).square()


def exo_loss(margins: Tensor, *, beta: float, label_smoothing: float) -> Tensor:
    """EXO: reverse Kullback-Leibler divergence from a soft label to the policy's own preference.

    Ji et al. 2024, "Towards Efficient Exact Optimization of Language Model Alignment", equation 16 for two completions.
    `label_smoothing`, above 0, is the probability that the label gives to the rejected one.
    """
    scaled = beta * margins
    log_chosen, log_rejected = F.logsigmoid(scaled), F.logsigmoid(-scaled)
    epsilon = torch.tensor(label_smoothing, dtype=margins.dtype, device=margins.device)
    return log_chosen.exp() * (log_chosen - torch.log1p(-epsilon)) + log_rejected.exp() * (log_rejected - epsilon.log())


def apo_zero_loss(chosen: Tensor, rejected: Tensor, *, beta: float) -> Tensor:
    """APO-zero: pull the chosen completion up and push the rejected one down, each against the reference.

    D'Oosterlinck et al. 2024, "Anchored Preference Optimization", equation 7; for pairs whose chosen completion is
    better than what the model would write.

    Args:
        chosen: Log-ratios of the chosen completions. Shape [pairs].
        rejected: Log-ratios of the rejected completions. Shape [pairs].
        beta: See the module.
    """
    return 1.0 - torch.sigmoid(beta * chosen) + torch.sigmoid(beta * rejected)


def apo_down_loss(chosen: Tensor, rejected: Tensor, *, beta: float) -> Tensor:
    """APO-down: push both completions down, the rejected one further.

    D'Oosterlinck et al. 2024, "Anchored Preference Optimization", equation 8; for pairs whose chosen completion is
    worse than what the model would write. Arguments as in `apo_zero_loss`.
    """
    return torch.sigmoid(beta * chosen) + 1.0 - torch.sigmoid(beta * (chosen - rejected))


def sppo_loss(chosen: Tensor, rejected: Tensor, *, beta: float) -> Tensor:
    """SPPO with hard labels: each log-ratio is to be half of 1 / beta away from zero, on its side.

    Wu et al. 2024, "Self-Play Preference Optimization", equation 4.7 with win probabilities 1 and 0. Arguments as in
    `apo_zero_loss`.
    """
    return (chosen - 0.5 / beta).square() + (rejected + 0.5 / beta).square()


def bco_pair_loss(chosen: Tensor, rejected: Tensor, *, beta: float) -> Tensor:
    """BCO: a classifier that calls the chosen completion good and the rejected one bad.

    Jung et al. 2024, "Binary Classifier Optimization for Large Language Model Alignment", equation 8 with a reward
    shift of 0. Arguments as in `apo_zero_loss`.
    """
    return -F.logsigmoid(beta * chosen) - F.logsigmoid(-beta * rejected)


def discopop_loss(margins: Tensor, *, beta: float, tau: float) -> Tensor:
    """DiscoPOP: a blend of the logistic and the exponential loss, by how far apart the pair is.

    Lu et al. 2024, "Discovering Preference Optimization Algorithms with and for Large Language Models", equation 5.
    `tau` is how sharply one goes over into the other.
    """
    scaled = beta * margins
    share = torch.sigmoid(scaled / tau)
    return (1.0 - share) * -F.logsigmoid(scaled) + share * torch.exp(-scaled)


def kto_pair_loss(
    chosen: Tensor, rejected: Tensor, *, beta: float, chosen_mean: Tensor, rejected_mean: Tensor
) -> Tensor:
    """KTO on pairs: each completion against the mean log-ratio of the other kind, half the sum of both.

    Ethayarajh et al. 2024, "KTO", equation 8, with the completions of the other kind in place of mismatched ones.

    Args:
        chosen: Log-ratios of the chosen completions. Shape [pairs].
        rejected: Log-ratios of the rejected completions. Shape [pairs].
        beta: See the module.
        chosen_mean: Mean of `chosen` over the optimiser step, a constant; negative means count as 0. Shape [].
        rejected_mean: The same of `rejected`.
    """
    better = 1.0 - torch.sigmoid(beta * (chosen - rejected_mean.clamp(min=0.0)))
    worse = 1.0 - torch.sigmoid(beta * (chosen_mean.clamp(min=0.0) - rejected))
    return (better + worse) / 2.0


def cpo_loss(chosen: Tensor, rejected: Tensor, *, beta: float, label_smoothing: float = 0.0) -> Tensor:
    """CPO's preference term: DPO with a uniform reference, which drops out.

    Xu et al. 2024, "Contrastive Preference Optimization", equation 3.

    Args:
        chosen: Log-probabilities of the chosen completions. Shape [pairs].
        rejected: Log-probabilities of the rejected completions. Shape [pairs].
        beta: Steepness.
        label_smoothing: As in `sigmoid_loss`.
    """
    return sigmoid_loss(chosen - rejected, beta=beta, label_smoothing=label_smoothing)


def simpo_loss(chosen_mean: Tensor, rejected_mean: Tensor, *, beta: float, gamma: float) -> Tensor:
    """SimPO: `-log sigmoid(beta * margin - gamma)` of log-probabilities per token, without a reference.

    Meng et al. 2024, "SimPO", equation 6.

    Args:
        chosen_mean: Mean log-probability of the tokens of the chosen completions. Shape [pairs].
        rejected_mean: The same of the rejected ones. Shape [pairs].
        beta: Steepness; 2 to 10 is usual.
        gamma: Margin that is wanted.
    """
    return -F.logsigmoid(beta * (chosen_mean - rejected_mean) - gamma)


def odds_ratio_loss(chosen_mean: Tensor, rejected_mean: Tensor) -> Tensor:
    """ORPO's preference term: `-log sigmoid` of the log of the ratio of odds.

    Hong et al. 2024, "ORPO", equations 4 and 7, before it is weighed. Arguments as in `simpo_loss`.
    """
    log_odds = (chosen_mean - rejected_mean) - (log1m_exp(chosen_mean) - log1m_exp(rejected_mean))
    return -F.logsigmoid(log_odds)


def log1m_exp(values: Tensor) -> Tensor:
    """Return `log(1 - exp(x))` for x below 0, exact where x is near 0 and where it is far away.

    Maechler 2012, "Accurately Computing log(1 - exp(-|a|))", equation 7. At 0, where a completion is certain, the
    largest finite number of odds stands in for infinity: 0 is raised to just below.
    """
    below = values.clamp(max=-torch.finfo(values.dtype).eps)
    near = below > -0.6931471805599453
    # Each branch gets values that are safe for it: a NaN in the branch not taken would still reach the gradient.
    return torch.where(
        near,
        torch.log(-torch.expm1(torch.where(near, below, -0.5))),
        torch.log1p(-torch.exp(torch.where(near, -1.0, below))),
    )


def kto_loss(
    log_ratios: Tensor,
    is_desirable: Tensor,
    kl: Tensor,
    *,
    beta: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> Tensor:
    """KTO: how far a completion is from where a person's sense of gain or loss would be satisfied.

    Ethayarajh et al. 2024, "KTO: Model Alignment as Prospect Theoretic Optimization", equation 8.

    Args:
        log_ratios: Of each completion. Shape [rows].
        is_desirable: True for completions to have more of. Shape [rows], bool.
        kl: Mean log-ratio of mismatched completions over the optimiser step, a constant; negative ones count as 0.
            Shape [].
        beta: See the module.
        desirable_weight: Weight of desirable completions.
        undesirable_weight: Weight of the others.
    """
    anchor = kl.clamp(min=0.0)
    gain = desirable_weight * (1.0 - torch.sigmoid(beta * (log_ratios - anchor)))
    loss = undesirable_weight * (1.0 - torch.sigmoid(beta * (anchor - log_ratios)))
    return torch.where(is_desirable, gain, loss)


def bradley_terry_loss(chosen: Tensor, rejected: Tensor, margins: Tensor | None = None) -> Tensor:
    """Reward model: `-log sigmoid(chosen - rejected - margin)`.

    Ouyang et al. 2022, "Training language models to follow instructions with human feedback", equation 1; the margin
    of Touvron et al. 2023, "Llama 2", equation 2.

    Args:
        chosen: Scores of the chosen sequences. Shape [pairs].
        rejected: Scores of the rejected sequences. Shape [pairs].
        margins: By how much each pair should differ. Shape [pairs].
    """
    difference = chosen - rejected
    return -F.logsigmoid(difference if margins is None else difference - margins)


def centering_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Square of the sum of a pair's scores: keeps scores around zero, which only differences would leave open.

    Eisenstein et al. 2023, "Helping or Herding?", equation 2.
    """
    return (chosen + rejected).square()
