"""Rounding while training: what it computes, what it leaves alone, and that it pays."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.tiny.models import tiny_model
from tunesmith.config.quantization import QuantizationConfig
from tunesmith.errors import ModelError
from tunesmith.models.quantization.qat import CompressionScheme, find_rounded, start_rounding

torchao = pytest.importorskip("torchao.quantization")

SCHEMES = ["int8-dynamic-int4-weight", "int4-weight", "int8-weight"]
FOUR_BITS = CompressionScheme("int4-weight", 32)


def fit(model, ids, steps, rate):
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, steps)
    for _ in range(steps):
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return loss.item()


def compressed_loss(model, ids, scheme=FOUR_BITS):
    """Compress the exact weights of a model and return its loss."""
    plain = tiny_model()
    plain.load_state_dict(model.state_dict())
    names = find_rounded(plain)
    torchao.quantize_(plain, scheme.build(), filter_fn=lambda module, name: name in names)
    with torch.no_grad():
        return plain(input_ids=ids, labels=ids).loss.item()


@pytest.fixture
def ids():
    return torch.randint(3, 420, (8, 24), generator=torch.Generator().manual_seed(1))


@pytest.mark.no_cover  # hundreds of steps over lines that the tests below meet
def test_a_model_trained_for_it_loses_less_when_it_is_compressed(ids):
    losses = {}
    for rounds in (False, True):
        model = tiny_model().train()
        if rounds:
            start_rounding(model, FOUR_BITS)
        fit(model, ids[:4], 200, 3e-3)
        losses[rounds] = compressed_loss(model, ids[:4])
    assert losses[True] < 0.95 * losses[False]


@pytest.mark.no_cover  # hundreds of steps over lines that the tests below meet
def test_an_adapter_trained_for_it_loses_less_when_it_is_merged_and_compressed(ids):
    begun = tiny_model().train()
    fit(begun, ids.flip(1), 60, 1e-2)
    losses = {}
    for rounds in (False, True):
        model = tiny_model()
        model.load_state_dict(begun.state_dict())
        torch.manual_seed(0)
        adapted = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear")).train()
        if rounds:
            start_rounding(adapted, FOUR_BITS)
        fit(adapted, ids[:4], 120, 1e-2)
        losses[rounds] = compressed_loss(adapted.merge_and_unload(), ids[:4])
    assert losses[True] < 0.95 * losses[False]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_adapted_layer_computes_what_it_will_after_merging_and_compressing(ids, scheme):
    how = CompressionScheme(scheme, 16)
    torch.manual_seed(0)
    adapted = get_peft_model(tiny_model(), LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    start_rounding(adapted, how)
    with torch.no_grad():
        rounding = adapted(input_ids=ids, labels=ids).loss.item()
        with adapted.disable_adapter():
            without = adapted(input_ids=ids, labels=ids).loss.item()
    assert compressed_loss(adapted.merge_and_unload(), ids, how) == pytest.approx(rounding, abs=5e-3)
    assert abs(without - rounding) > 0.008


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_computed_while_training_is_what_the_compressed_model_computes(ids, scheme):
    model = tiny_model()
    how = CompressionScheme(scheme, 16)
    start_rounding(model, how)
    with torch.no_grad():
        rounding = model(input_ids=ids, labels=ids).loss.item()
        exact = tiny_model()(input_ids=ids, labels=ids).loss.item()
    assert compressed_loss(model, ids, how) == pytest.approx(rounding, abs=2e-3)
    assert abs(exact - rounding) > 1e-5


def test_weights_stay_the_same_tensors_and_exact(ids):
    model = tiny_model()
    before = dict(model.named_parameters())
    values = {name: value.detach().clone() for name, value in before.items()}
    assert start_rounding(model, FOUR_BITS) == 14
    after = dict(model.named_parameters())
    assert all(after[name] is before[name] for name in before)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in values.items())
    model(input_ids=ids, labels=ids).loss.backward()
    assert all(value.grad is not None for value in after.values())


def test_the_head_and_the_factors_of_adapters_do_not_round():
    adapted = get_peft_model(tiny_model(tied=False), LoraConfig(r=4, target_modules="all-linear"))
    chosen = find_rounded(adapted)
    assert len(chosen) == 14
    assert all(name.endswith("base_layer") for name in chosen)
    start_rounding(adapted, FOUR_BITS)
    kinds = {type(module).__name__ for name, module in adapted.named_modules() if "lora_A.default" in name}
    assert kinds == {"Linear"}


def test_a_group_that_does_not_divide_is_refused():
    with pytest.raises(ModelError, match="qat_group_size: 24 does not divide the 32 inputs of model"):
        start_rounding(tiny_model(), CompressionScheme("int4-weight", 24))


def test_the_scheme_is_kept_beside_the_weights(tmp_path):
    assert CompressionScheme.read(tmp_path) is None
    FOUR_BITS.write(tmp_path)
    assert CompressionScheme.read(tmp_path) == FOUR_BITS
    assert CompressionScheme.of(QuantizationConfig()) is None
    asked = QuantizationConfig(qat="int8-weight", qat_group_size=64)
    assert CompressionScheme.of(asked) == CompressionScheme("int8-weight", 64)
