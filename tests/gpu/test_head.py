"""The head in chunks: the loss and gradients of whole logits, in less memory."""

import pytest
import torch
from torch import nn

from tunesmith.objectives.chunked_head import chunked_head_loss
from tunesmith.objectives.losses.cross_entropy import token_cross_entropy

pytestmark = pytest.mark.gpu

ITEMS, WIDTH, VOCABULARY, CHUNK = 2048, 128, 16_000, 256


class PlainHead:
    """An output projection without scale or cap."""

    def __init__(self, device, dtype=torch.float32):
        torch.manual_seed(0)
        self.module = nn.Linear(WIDTH, VOCABULARY, bias=False).to(device, dtype)

    def transform(self, logits):
        return logits


def inputs(device, dtype=torch.float32, items=ITEMS):
    rng = torch.Generator().manual_seed(1)
    hidden = torch.randn(items, WIDTH, generator=rng).to(device, dtype).requires_grad_()
    return hidden, torch.randint(VOCABULARY, (items,), generator=rng).to(device)


def plain(head, hidden, labels):
    return token_cross_entropy(head.module(hidden), labels).sum()


def chunked(head, hidden, labels):
    return chunked_head_loss(hidden, labels, head, token_cross_entropy, chunk_tokens=CHUNK).total


@pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=str)
def test_loss_and_gradients_equal_those_of_whole_logits(device, autocast):
    head = PlainHead(device)
    hidden, labels = inputs(device, items=ITEMS if device.type == "cuda" else 300)
    found = []
    for loss in (chunked, plain):
        with torch.autocast(device.type, dtype=autocast, enabled=autocast is not None):
            total = loss(head, hidden, labels) / len(labels)
        found.append([total, *torch.autograd.grad(total, [hidden, head.module.weight])])
    tolerance = 1e-5 if autocast is None else 2e-2
    for ours, theirs in zip(*found, strict=True):
        assert (ours - theirs).norm() <= tolerance * theirs.norm()


def test_peak_memory_is_a_fraction_of_that_of_whole_logits(gpu):
    head = PlainHead(gpu)
    peaks = []
    for loss in (chunked, plain):
        hidden, labels = inputs(gpu)
        loss(head, *inputs(gpu, items=8)).backward()  # the workspace of cuBLAS, not counted below
        head.module.weight.grad = None
        torch.cuda.reset_peak_memory_stats(gpu)
        before = torch.cuda.memory_allocated(gpu)
        loss(head, hidden, labels).backward()
        peaks.append(torch.cuda.max_memory_allocated(gpu) - before)
    assert peaks[0] < peaks[1] / 2.5, [f"{peak / 1e6:.0f} MB" for peak in peaks]


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float16, 2.0**18), (torch.bfloat16, 1 / 37)], ids=str)
def test_the_scale_of_the_loss_is_not_rounded_to_half_precision(device, dtype, scale):
    """A GPU rounds a scalar tensor to the type of the other factor, where 2**18 is infinite."""
    head = PlainHead(device, dtype)
    head.module.requires_grad_(False)
    hidden, labels = inputs(device, dtype, items=64)
    gradients = [torch.autograd.grad(factor * chunked(head, hidden, labels), hidden)[0] for factor in (1.0, scale)]
    limit = torch.finfo(dtype).max
    expected = gradients[0].float() * scale
    fits = expected.abs() < limit
    assert fits.float().mean() > 0.9
    assert torch.equal(gradients[1][fits], expected.to(dtype)[fits])
