import pytest
import torch
from torch import nn

from tests.tiny.models import tiny_model
from tests.unit.objectives.test_chunked_head import ScaledHead
from tunesmith.models.heads import resolve_head, run_body
from tunesmith.objectives.log_probabilities import token_values, values_from_logits


def plain(hidden, labels, head):
    return torch.log_softmax(head.transform(head.module(hidden)), -1).gather(1, labels[:, None])[:, 0]


@pytest.mark.parametrize("chunk_tokens", [1, 3, 7, 100])
@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize("is_trained", [False, True])
def test_values_and_weighed_gradients_equal_the_plain_computation(chunk_tokens, cap, is_trained):
    head = ScaledHead(nn.Linear(6, 13).requires_grad_(is_trained), cap)
    hidden = torch.randn(7, 6, requires_grad=True)
    labels, weights = torch.randint(13, (7,)), torch.randn(7)
    sources = [hidden, *(head.module.parameters() if is_trained else ())]
    ours = token_values(hidden, labels, head, chunk_tokens=chunk_tokens).log_probabilities
    theirs = plain(hidden, labels, head)
    torch.testing.assert_close(ours, theirs)
    # Squared, so that the gradient of one token depends on all: the weights come only after the values.
    found = torch.autograd.grad((weights * ours).sum().square(), sources)
    expected = torch.autograd.grad((weights * theirs).sum().square(), sources)
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize("with_gradients", [False, True])
def test_statistics_are_those_of_the_whole_logits_and_carry_no_gradient(is_trained, with_gradients):
    head = ScaledHead(nn.Linear(6, 13).requires_grad_(is_trained), cap=3.0)
    hidden = torch.randn(7, 6, requires_grad=True)
    labels = torch.randint(13, (7,))
    logits = head.transform(head.module(hidden)).detach()
    with torch.set_grad_enabled(with_gradients):
        values = token_values(hidden, labels, head, chunk_tokens=2, with_statistics=True)
    torch.testing.assert_close(values.mean_logits, logits.mean(-1))
    torch.testing.assert_close(values.entropies, torch.distributions.Categorical(logits=logits).entropy())
    assert not values.mean_logits.requires_grad
    assert not values.entropies.requires_grad
    assert values.log_probabilities.requires_grad == with_gradients


def test_statistics_are_not_made_unless_asked_for():
    head = ScaledHead(nn.Linear(6, 13))
    values = token_values(torch.randn(3, 6), torch.randint(13, (3,)), head, chunk_tokens=2)
    assert values.mean_logits is None
    assert values.entropies is None


@pytest.mark.parametrize("is_trained", [False, True])
def test_no_labels_give_no_values_and_a_trained_head_still_gets_a_gradient(is_trained):
    head = ScaledHead(nn.Linear(6, 13).requires_grad_(is_trained))
    hidden = torch.randn(0, 6, requires_grad=True)
    values = token_values(hidden, torch.zeros(0, dtype=torch.long), head, chunk_tokens=2).log_probabilities
    values.sum().backward()
    assert values.shape == (0,)
    assert hidden.grad.shape == (0, 6)
    if is_trained:
        assert head.module.weight.grad.abs().sum().item() == 0.0


def test_nothing_to_differentiate_is_no_error():
    head = ScaledHead(nn.Linear(6, 13).requires_grad_(False))
    hidden, labels = torch.randn(5, 6), torch.randint(13, (5,))
    values = token_values(hidden, labels, head, chunk_tokens=2).log_probabilities
    torch.testing.assert_close(values, plain(hidden, labels, head))
    assert not values.requires_grad


def test_never_more_logits_at_a_time_than_a_chunk_has():
    seen = []
    head = ScaledHead(nn.Linear(6, 13).requires_grad_(False))
    head.module.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    hidden = torch.randn(7, 6, requires_grad=True)
    token_values(hidden, torch.randint(13, (7,)), head, chunk_tokens=3).log_probabilities.sum().backward()
    assert seen == [3, 3, 1]


def test_bf16_states_are_weighed_by_unrounded_factors():
    head = ScaledHead(nn.Linear(6, 13, dtype=torch.bfloat16).requires_grad_(False))
    hidden = torch.randn(1, 6, dtype=torch.bfloat16, requires_grad=True)
    factor = 1 + 2**-9  # rounds to 1 in bf16
    values = token_values(hidden, torch.tensor([4]), head, chunk_tokens=2).log_probabilities
    assert values.dtype == torch.float32
    (values * 1000 * factor).sum().backward()
    (expected,) = torch.autograd.grad(plain(hidden, torch.tensor([4]), head).float().sum() * 1000, hidden)
    exact = (expected.float() * factor).bfloat16()
    torch.testing.assert_close(hidden.grad, exact, rtol=2e-2, atol=1.0)


@pytest.mark.parametrize("family", ["llama", "gemma2", "cohere"])
def test_head_of_a_real_family_gives_the_log_probabilities_of_its_own_logits(family):
    model = tiny_model(family)
    ids = torch.randint(3, 420, (2, 9))
    head = resolve_head(model)
    hidden = run_body(model, head, {"input_ids": ids, "use_cache": False}).hidden[:, :-1].flatten(0, 1)
    labels = ids[:, 1:].flatten()
    logits = model(input_ids=ids).logits[:, :-1].flatten(0, 1)
    ours = token_values(hidden, labels, head, chunk_tokens=5).log_probabilities
    torch.testing.assert_close(ours, values_from_logits(logits, labels).log_probabilities, rtol=1e-4, atol=1e-4)
