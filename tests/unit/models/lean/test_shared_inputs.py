"""Lean layers that read the same input compute it together: the same numbers, and nothing held for longer."""

import weakref

import pytest
import torch
from peft.tuners.lora.layer import Linear as PeftLoraLinear
from torch import Tensor, nn

from tests.unit.models.lean.test_lean_layers import lora_model, loss_and_gradients
from tunesmith.models.lean import shared, use_lean_layers
from tunesmith.models.lean.lora import LeanLoraLinear
from tunesmith.models.lean.shared import SharedInput, share_inputs


@pytest.fixture
def joint_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the joint products by the number of layers in each."""
    calls: list[int] = []
    forward = shared._KeepShared.forward

    def counted(ctx: object, x: Tensor, scalings: tuple[float, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        calls.append(len(scalings))
        return forward(ctx, x, scalings, *tensors)

    monkeypatch.setattr(shared._KeepShared, "forward", staticmethod(counted))
    return calls


def join(model: nn.Module) -> None:
    """Replace the LoRA layers alone: the other lean layers are for single precision and less."""
    for module in model.modules():
        if type(module) is PeftLoraLinear:
            module.__class__ = LeanLoraLinear
    share_inputs(model)


def assert_same(model: nn.Module) -> None:
    """Compare a step in double precision, where norms of the library still round to single precision."""
    model = model.double()
    model.get_input_embeddings().weight.requires_grad_(True)
    loss, expected = loss_and_gradients(model)
    join(model)
    joint_loss, gradients = loss_and_gradients(model)
    torch.testing.assert_close(joint_loss, loss, rtol=1e-6, atol=0)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-6, atol=1e-9, msg=name)


def groups(model: nn.Module) -> list[SharedInput]:
    found = {id(m.shared): m.shared for m in model.modules() if isinstance(m, LeanLoraLinear) and m.shared is not None}
    return list(found.values())


def test_a_step_differs_from_the_library_by_rounding_alone(joint_calls: list[int]) -> None:
    assert_same(lora_model())
    assert joint_calls == [3, 2] * 2  # query, key and value; gate and up; in two layers


def test_ranks_and_strengths_may_differ_between_the_layers(joint_calls: list[int]) -> None:
    settings = {"rank_pattern": {"q_proj": 2, "up_proj": 7}, "alpha_pattern": {"v_proj": 1}}
    assert_same(lora_model(**settings))
    assert joint_calls == [3, 2] * 2


def test_layers_beside_one_without_an_adapter_are_joined_without_it(joint_calls: list[int]) -> None:
    assert_same(lora_model(target_modules=["q_proj", "v_proj", "up_proj"]))
    assert joint_calls == [2, 2]


@pytest.mark.parametrize("settings", [{"lora_dropout": 0.5}, {"use_dora": True}])
def test_layers_that_are_not_plain_are_computed_alone(settings: dict[str, object], joint_calls: list[int]) -> None:
    model = lora_model(**settings)
    use_lean_layers(model)
    loss_and_gradients(model)
    assert joint_calls == []


def test_a_sibling_that_is_not_plain_keeps_the_others_from_joining(joint_calls: list[int]) -> None:
    model = lora_model()
    for layer in model.get_base_model().model.layers:
        layer.self_attn.k_proj.base_layer.weight.requires_grad_(True)
    assert_same(model)
    assert joint_calls == [2, 2]  # gate and up alone


def test_joining_can_be_left_out(joint_calls: list[int]) -> None:
    model = lora_model()
    use_lean_layers(model, joins=False)
    loss_and_gradients(model)
    assert groups(model) == []
    assert joint_calls == []


def test_a_compiler_sees_layers_that_know_nothing_of_each_other(
    joint_calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = lora_model()
    use_lean_layers(model)
    loss, _ = loss_and_gradients(model)
    assert joint_calls == [3, 2] * 2
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.testing.assert_close(loss_and_gradients(model)[0], loss)
    assert joint_calls == [3, 2] * 2


def test_nothing_of_a_step_is_held_after_it() -> None:
    model = lora_model()
    use_lean_layers(model)
    loss_and_gradients(model)
    assert [group._desk.begun for group in groups(model)] == [None] * 4


def test_a_pass_that_failed_holds_nothing_once_the_next_one_has_begun() -> None:
    model = lora_model()
    use_lean_layers(model)
    last = model.get_base_model().model.layers[1].self_attn

    def fail(*_: object) -> None:
        raise MemoryError

    hook = last.k_proj.register_forward_pre_hook(fail)
    held: list[weakref.ref[Tensor]] = []
    watch = last.q_proj.register_forward_pre_hook(lambda _, inputs: held.append(weakref.ref(inputs[0])))
    with pytest.raises(MemoryError):
        loss_and_gradients(model)
    hook.remove()
    watch.remove()
    assert held[0]() is not None
    first = model.get_base_model().model.layers[0].self_attn
    seen: list[bool] = []
    first.k_proj.register_forward_pre_hook(lambda *_: seen.append(held[0]() is None))
    loss_and_gradients(model)
    assert seen == [True]


def test_gradient_checkpointing_gives_the_same_gradients() -> None:
    model = lora_model()
    use_lean_layers(model)
    _, expected = loss_and_gradients(model)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    _, gradients = loss_and_gradients(model)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], msg=name)


class Pair(nn.Module):
    """Two siblings that a test calls as it likes."""

    def __init__(self) -> None:
        super().__init__()
        model = lora_model(target_modules=["gate_proj", "up_proj"]).double()
        join(model)
        mlp = model.get_base_model().model.layers[0].mlp
        self.gate, self.up = mlp.gate_proj, mlp.up_proj

    def expected(self, layer: LeanLoraLinear, x: Tensor) -> Tensor:
        down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        return x @ (layer.base_layer.weight + layer.scaling["default"] * up @ down).t()


def row(seed: int) -> Tensor:
    return torch.randn(1, 3, 32, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_another_input_is_never_answered_with_what_was_begun() -> None:
    pair, first, second = Pair(), row(1), row(2)
    pair.gate(first)
    torch.testing.assert_close(pair.up(second), pair.expected(pair.up, second))
    torch.testing.assert_close(pair.gate(second), pair.expected(pair.gate, second))
    torch.testing.assert_close(pair.gate(second), pair.expected(pair.gate, second))  # once more than there are layers


def test_an_input_that_was_written_to_is_a_new_one() -> None:
    pair, x = Pair(), row(1)
    pair.gate(x)
    with torch.no_grad():
        x.mul_(2)
    torch.testing.assert_close(pair.up(x), pair.expected(pair.up, x))


def test_an_output_that_nobody_reads_has_no_gradient() -> None:
    pair, x = Pair(), row(1).requires_grad_(True)
    pair.gate(x)
    pair.up(x).sum().backward()
    assert pair.gate.lora_B["default"].weight.grad is None
    assert pair.gate.lora_A["default"].weight.grad.abs().max() == 0
    found = x.grad.clone()
    x.grad = None
    pair.expected(pair.up, x).sum().backward()
    torch.testing.assert_close(found, x.grad)
