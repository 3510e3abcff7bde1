"""Ways of gradient checkpointing: the same gradients, with other things kept."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from tests.tiny.models import tiny_model
from tunesmith.errors import ModelError
from tunesmith.models.checkpointing import enable_gradient_checkpointing

IDS = torch.arange(3, 67)[None]


def gradients(model):
    """Return the gradients of one step and the number of bytes that were kept for its backward pass."""
    kept = 0
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def count(tensor):
        nonlocal kept
        if tensor.untyped_storage().data_ptr() not in weights:
            kept += tensor.numel() * tensor.element_size()
        return tensor

    with saved_tensors_hooks(count, lambda tensor: tensor):
        loss = model.train()(input_ids=IDS, labels=IDS, use_cache=False).loss
    loss.backward()
    return {name: value.grad for name, value in model.named_parameters()}, kept


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("options", [{}, {"every": 2}, {"kept": "products"}], ids=str)
def test_gradients_stay_the_same(family, options):
    expected, _ = gradients(tiny_model(family))
    model = tiny_model(family)
    enable_gradient_checkpointing(model, use_reentrant=False, **options)
    found, _ = gradients(model)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-6, rtol=1e-5, msg=name)


def test_every_second_layer_keeps_what_the_others_do_not():
    model = tiny_model(layers=5)
    enable_gradient_checkpointing(model, use_reentrant=False, every=2)
    assert [layer.gradient_checkpointing for layer in model.model.layers] == [True, False, True, False, True]


def test_more_checkpoints_keep_less():
    _, everything = gradients(tiny_model(layers=4))
    kept = []
    for every in (2, 1):
        model = tiny_model(layers=4)
        enable_gradient_checkpointing(model, use_reentrant=False, every=every)
        kept.append(gradients(model)[1])
    assert everything > kept[0] > kept[1]


class ProductCounter(TorchDispatchMode):
    """Counts matrix products that are computed; it stands outside of checkpointing's own mode."""

    def __init__(self):
        super().__init__()
        self.num_products = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.num_products += operation in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return operation(*args, **(kwargs or {}))


def count_products(model):
    with ProductCounter() as counter:
        gradients(model)
    return counter.num_products


def test_selective_checkpoints_compute_no_product_twice():
    counts = {}
    for kept in ("nothing", "products"):
        model = tiny_model()
        enable_gradient_checkpointing(model, use_reentrant=False, kept=kept)
        counts[kept] = count_products(model)
    assert counts["products"] == count_products(tiny_model()) < counts["nothing"]


def test_too_few_layers_are_refused():
    with pytest.raises(ModelError, match="checkpoint_every: 3, but the model has 2 layers"):
        enable_gradient_checkpointing(tiny_model(), use_reentrant=False, every=3)
