import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

from tests.tiny.models import tiny_model
from tunesmith.objectives.chunked_head import chunked_head_loss, resolve_chunk_tokens
from tunesmith.objectives.losses.cross_entropy import token_cross_entropy


class ScaledHead:
    """A head that caps its scores, as some families do."""

    def __init__(self, module, cap=None):
        self.module = module
        self.cap = cap

    def transform(self, logits):
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


def plain_loss(hidden, labels, head):
    return token_cross_entropy(head.transform(head.module(hidden)), labels).sum()


def gradients_of(loss, tensors):
    return torch.autograd.grad(loss, tensors)


@pytest.mark.parametrize("chunk_tokens", [1, 3, 7, 100])
@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize("bias", [False, True])
def test_loss_and_gradients_equal_the_plain_computation(chunk_tokens, cap, bias):
    head = ScaledHead(nn.Linear(6, 13, bias=bias), cap)
    hidden = torch.randn(7, 6, requires_grad=True)
    labels = torch.randint(13, (7,))
    parameters = [hidden, *head.module.parameters()]
    chunked = chunked_head_loss(hidden, labels, head, token_cross_entropy, chunk_tokens=chunk_tokens).total
    plain = plain_loss(hidden, labels, head)
    torch.testing.assert_close(chunked, plain)
    for ours, theirs in zip(
        gradients_of(3.0 * chunked, parameters), gradients_of(3.0 * plain, parameters), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_frozen_head_gets_no_gradient_and_hidden_states_do():
    head = ScaledHead(nn.Linear(6, 13).requires_grad_(False))
    hidden = torch.randn(5, 6, requires_grad=True)
    chunked_head_loss(hidden, torch.randint(13, (5,)), head, token_cross_entropy, chunk_tokens=2).total.backward()
    assert hidden.grad is not None
    assert head.module.weight.grad is None


def test_trained_head_over_frozen_hidden_states_gets_its_gradient():
    head = ScaledHead(nn.Linear(6, 13))
    hidden, labels = torch.randn(5, 6), torch.randint(13, (5,))
    chunked_head_loss(hidden, labels, head, token_cross_entropy, chunk_tokens=2).total.backward()
    expected = gradients_of(plain_loss(hidden, labels, head), [head.module.weight])[0]
    torch.testing.assert_close(head.module.weight.grad, expected)


def test_no_labels_give_zero_and_zero_gradients():
    head = ScaledHead(nn.Linear(6, 13))
    hidden = torch.randn(0, 6, requires_grad=True)
    loss = chunked_head_loss(hidden, torch.zeros(0, dtype=torch.long), head, token_cross_entropy, chunk_tokens=2).total
    loss.backward()
    assert loss.item() == 0.0
    assert head.module.weight.grad.abs().sum().item() == 0.0


@pytest.mark.parametrize("options", [{"target_modules": ["lm_head"]}, {"modules_to_save": ["lm_head"]}])
def test_adapted_heads_are_trained(options):
    model = get_peft_model(
        tiny_model("llama", tied=False), LoraConfig(r=2, **{"target_modules": ["q_proj"], **options})
    )
    head = ScaledHead(model.get_output_embeddings())
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)
    trained = [parameter for parameter in head.module.parameters() if parameter.requires_grad]
    assert trained
    hidden, labels = torch.randn(9, 32), torch.randint(420, (9,))
    chunked = chunked_head_loss(hidden, labels, head, token_cross_entropy, chunk_tokens=4).total
    for ours, theirs in zip(
        gradients_of(chunked, trained), gradients_of(plain_loss(hidden, labels, head), trained), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_gradients_survive_autocast():
    head = ScaledHead(nn.Linear(16, 40))
    hidden = torch.randn(6, 16, requires_grad=True)
    labels = torch.randint(40, (6,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        head.module(hidden)  # fills autocast's cache of cast weights, as the model's own forward does
        loss = chunked_head_loss(hidden, labels, head, token_cross_entropy, chunk_tokens=2).total
        plain = plain_loss(hidden, labels, head)
    tensors = [hidden, head.module.weight]
    for ours, theirs in zip(gradients_of(loss, tensors), gradients_of(plain, tensors), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


def test_no_logits_outlive_their_chunk():
    sizes = []

    class Recorder(ScaledHead):
        def transform(self, logits):
            sizes.append(logits.shape[0])
            return logits

    head = Recorder(nn.Linear(6, 13))
    chunked_head_loss(
        torch.randn(10, 6, requires_grad=True), torch.randint(13, (10,)), head, token_cross_entropy, chunk_tokens=4
    )
    assert sizes == [4, 4, 2]


def test_evaluation_counts_correct_tokens():
    head = ScaledHead(nn.Linear(4, 4, bias=False))
    with torch.no_grad():
        head.module.weight.copy_(torch.eye(4))
        measured = chunked_head_loss(
            torch.eye(4), torch.tensor([0, 1, 3, 3]), head, token_cross_entropy, chunk_tokens=3
        )
    assert measured.correct.item() == 3
    torch.testing.assert_close(measured.total, plain_loss(torch.eye(4), torch.tensor([0, 1, 3, 3]), head))


def test_chunks_follow_the_vocabulary():
    def head(vocabulary):
        return nn.Linear(2, vocabulary, device="meta")

    assert resolve_chunk_tokens(head(49_152), torch.device("cpu")) == 341  # 2**24 // 49152
    assert resolve_chunk_tokens(head(152_064), torch.device("cuda")) == 882  # 2**27 // 152064
    assert resolve_chunk_tokens(head(10**9), torch.device("cpu")) == 32
    assert resolve_chunk_tokens(nn.Identity(), torch.device("cpu")) == 2**24  # nothing that tells


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float16, 2.0**18), (torch.bfloat16, 1 / 37)])
def test_the_scale_of_the_loss_is_not_rounded_to_half_precision(dtype, scale):
    """2**18 is infinite in fp16, and 1 / 37 is a sixth of a percent off in bf16."""
    head = ScaledHead(nn.Linear(8, 5).requires_grad_(False).to(dtype))
    values = torch.randn(64, 8) * (1e-3 if dtype == torch.float16 else 1.0)
    gradients = []
    for factor in (1.0, scale):
        hidden = values.to(dtype).requires_grad_()
        loss = chunked_head_loss(hidden, torch.zeros(64).long(), head, scaled_down_loss, chunk_tokens=9).total
        gradients.append(torch.autograd.grad(loss * factor, hidden)[0])
    assert torch.equal(gradients[1], (gradients[0].float() * scale).to(dtype))
    assert gradients[1].isfinite().all()


def scaled_down_loss(logits, labels):
    return token_cross_entropy(logits, labels) * 2.0**-8
