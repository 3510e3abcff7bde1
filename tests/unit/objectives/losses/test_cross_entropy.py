import math

import pytest
import torch

from tunesmith.objectives.losses.cross_entropy import token_cross_entropy


def slow_loss(logits, label, label_smoothing, z_loss):
    normaliser = math.log(sum(math.exp(value) for value in logits))
    log_probabilities = [value - normaliser for value in logits]
    target = [label_smoothing / len(logits)] * len(logits)
    target[label] += 1 - label_smoothing
    smoothed = -sum(share * value for share, value in zip(target, log_probabilities, strict=True))
    return smoothed + z_loss * normaliser**2


def test_even_scores_cost_the_logarithm_of_the_vocabulary():
    loss = token_cross_entropy(torch.zeros(2, 8), torch.tensor([0, 7]))
    torch.testing.assert_close(loss, torch.full((2,), math.log(8.0)))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("z_loss", [0.0, 0.01])
def test_loss_equals_a_slow_sum_over_the_vocabulary(label_smoothing, z_loss):
    logits = torch.randn(5, 11, generator=torch.Generator().manual_seed(1)).double()
    labels = torch.tensor([0, 10, 3, 3, 7])
    expected = [
        slow_loss(row, label, label_smoothing, z_loss)
        for row, label in zip(logits.tolist(), labels.tolist(), strict=True)
    ]
    loss = token_cross_entropy(logits, labels, label_smoothing=label_smoothing, z_loss=z_loss)
    torch.testing.assert_close(loss, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("z_loss", [0.0, 0.01])
def test_gradient_is_right_in_float64(z_loss):
    logits = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([4, 0, 2])
    torch.autograd.gradcheck(
        lambda scores: token_cross_entropy(scores, labels, label_smoothing=0.1, z_loss=z_loss), (logits,)
    )


def test_half_precision_scores_are_summed_in_float32():
    logits = torch.randn(4, 300).bfloat16()
    labels = torch.tensor([0, 1, 2, 3])
    loss = token_cross_entropy(logits, labels)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, token_cross_entropy(logits.float(), labels))


def test_huge_scores_stay_finite():
    loss = token_cross_entropy(torch.tensor([[1e4, -1e4]]), torch.tensor([0]), z_loss=0.0)
    assert loss.item() == 0.0
