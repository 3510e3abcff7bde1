import math

import torch

from tunesmith.objectives.losses.log_probability import token_entropy, token_log_probability


def test_log_probability_of_even_odds_is_minus_ln_2():
    logits = torch.tensor([[3.0, 3.0, -torch.inf]])
    torch.testing.assert_close(token_log_probability(logits, torch.tensor([1])), torch.tensor([-math.log(2)]))


def test_entropy_of_even_odds_is_ln_2_and_of_certainty_is_0():
    logits = torch.tensor([[3.0, 3.0, -torch.inf], [0.0, -torch.inf, -torch.inf]])
    torch.testing.assert_close(token_entropy(logits, logits.logsumexp(-1)), torch.tensor([math.log(2), 0.0]))


def test_half_precision_is_computed_in_float32_and_double_stays_double():
    logits = torch.randn(3, 7)
    labels = torch.tensor([1, 2, 3])
    half = logits.bfloat16()
    torch.testing.assert_close(token_log_probability(half, labels), token_log_probability(half.float(), labels))
    assert token_entropy(half, half.float().logsumexp(-1)).dtype == torch.float32
    assert token_entropy(logits.double(), logits.double().logsumexp(-1)).dtype == torch.float64
