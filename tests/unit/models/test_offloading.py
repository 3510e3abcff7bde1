import torch

from tests.tiny.models import tiny_model
from tunesmith.models.offloading import ActivationOffload

IDS = torch.arange(3, 67)[None]


def gradients(model, context=None):
    model.train()
    if context is None:
        loss = model(input_ids=IDS, labels=IDS, use_cache=False).loss
    else:
        with context:
            loss = model(input_ids=IDS, labels=IDS, use_cache=False).loss
    loss.backward()
    return {name: value.grad for name, value in model.named_parameters()}


def test_gradients_are_those_of_activations_that_stayed():
    model = tiny_model()
    offload = ActivationOffload(model.parameters(), smallest_bytes=1, device_type="cpu")
    found, expected = gradients(model, offload), gradients(tiny_model())
    assert offload.parked_bytes > 100_000
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def test_weights_and_small_tensors_stay():
    linear, x = torch.nn.Linear(64, 64, bias=False), torch.randn(8, 64, requires_grad=True)
    offload = ActivationOffload(linear.parameters(), smallest_bytes=1, device_type="cpu")
    with offload:
        linear(x).sum().backward()
    assert offload.parked_bytes == x.numel() * 4  # the input, and not the weight, which is kept for it too
    offload = ActivationOffload(linear.parameters(), smallest_bytes=10**6, device_type="cpu")
    with offload:
        linear(x).sum().backward()
    assert offload.parked_bytes == 0


def test_what_is_not_on_the_device_stays():
    model = tiny_model()
    offload = ActivationOffload(model.parameters(), smallest_bytes=1)
    gradients(model, offload)
    assert offload.parked_bytes == 0


def test_it_can_be_used_for_one_pass_after_the_other():
    model = tiny_model()
    offload = ActivationOffload(model.parameters(), smallest_bytes=1, device_type="cpu")
    gradients(model, offload)
    once = offload.parked_bytes
    gradients(model, offload)
    assert offload.parked_bytes == 2 * once
