"""Lean layers compute what the layers they replace compute, and step aside where they cannot."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn

from tests.tiny.models import FAMILIES, tiny_model
from tunesmith.models.lean import LeanLayers, lora, use_lean_layers


def lora_model(family: str = "llama", **settings: object) -> nn.Module:
    torch.manual_seed(0)
    options = {"r": 4, "lora_alpha": 12, "target_modules": "all-linear", "task_type": "CAUSAL_LM", **settings}
    model = get_peft_model(tiny_model(family), LoraConfig(**options))
    with torch.no_grad():  # B begins at zero, where A has no gradient
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    return model.train()


def loss_and_gradients(model: nn.Module, **forward: object) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    ids = torch.arange(5, 27).reshape(2, 11)
    output = model(input_ids=ids, labels=ids, use_cache=False, **forward)
    output.loss.backward()
    return output.loss.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def assert_same(model: nn.Module, *, tolerance: float = 1e-5) -> LeanLayers:
    """Compare a step before and after; the gradients of input embeddings show those with respect to inputs."""
    model.get_input_embeddings().weight.requires_grad_(True)
    loss, expected = loss_and_gradients(model)
    replaced = use_lean_layers(model)
    lean_loss, gradients = loss_and_gradients(model)
    assert lean_loss == pytest.approx(loss.item(), rel=tolerance)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=tolerance, atol=tolerance, msg=name)
    return replaced


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_gives_the_same_loss_and_gradients_in_every_family(family: str) -> None:
    replaced = assert_same(lora_model(family))
    assert replaced.lora > 0


def test_every_layer_of_a_llama_is_replaced() -> None:
    # Two layers: seven projections, one feed-forward layer and two norms each, and the last norm.
    assert use_lean_layers(lora_model("llama")) == LeanLayers(lora=14, mlps=2, norms=5)


def test_layers_that_compute_something_else_are_left_alone() -> None:
    # Gemma's gate is a GELU and its norm multiplies by one plus the weight.
    assert use_lean_layers(lora_model("gemma2")) == LeanLayers(lora=14, mlps=0, norms=0)


def test_a_bias_of_the_base_layer_is_added() -> None:
    model = lora_model("qwen2", target_modules=["q_proj", "v_proj"])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("base_layer.bias"):
                parameter.normal_()
    assert_same(model)


@pytest.mark.parametrize(
    "settings",
    [
        {"use_dora": True},
        {"use_rslora": True},
        {"target_modules": ["q_proj"]},
        {"modules_to_save": ["lm_head"]},
        {"trainable_token_indices": [7]},
    ],
)
def test_other_kinds_of_adapters_give_the_same_step(settings: dict[str, object]) -> None:
    assert_same(lora_model(**settings))


def test_dropout_draws_the_same_numbers() -> None:
    model = lora_model(lora_dropout=0.5)
    torch.manual_seed(3)
    loss, _ = loss_and_gradients(model)
    use_lean_layers(model)
    torch.manual_seed(3)
    assert loss_and_gradients(model)[0] == loss


def test_trained_norms_get_their_gradient() -> None:
    model = lora_model()
    for name, parameter in model.named_parameters():
        if "layernorm" in name:
            parameter.requires_grad_(True)
    assert_same(model)


def test_gradient_checkpointing_gives_the_same_gradients() -> None:
    model = lora_model()
    use_lean_layers(model)
    loss, expected = loss_and_gradients(model)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    again, gradients = loss_and_gradients(model)
    assert again == loss
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], msg=name)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2"])
def test_recomputation_of_a_layer_leaves_out_a_last_product_that_nobody_reads(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = lora_model(family)
    use_lean_layers(model)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    widths: list[int] = []
    multiply = lora._Multiply.forward

    def counted(ctx: object, promise: Tensor, rows: Tensor, *rest: object) -> Tensor:
        widths.append(rows.shape[-1])
        return multiply(ctx, promise, rows, *rest)

    monkeypatch.setattr(lora._Multiply, "forward", staticmethod(counted))
    loss_and_gradients(model)
    # Two layers of seven projections, forward and once more; Gemma's layers end with a norm, which needs the product.
    assert len(widths) == (28 if family == "gemma2" else 26)


def test_mixed_number_types_and_autocast_are_left_to_the_original() -> None:
    model = lora_model()
    for name, parameter in model.named_parameters():
        if "lora_" not in name:
            parameter.data = parameter.data.to(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = loss_and_gradients(model)
        use_lean_layers(model)
        assert loss_and_gradients(model)[0] == loss


def test_an_adapter_that_is_switched_off_has_no_effect() -> None:
    model = lora_model()
    with model.disable_adapter():
        loss = model(input_ids=torch.arange(9)[None], labels=torch.arange(9)[None]).loss
    use_lean_layers(model)
    with model.disable_adapter():
        again = model(input_ids=torch.arange(9)[None], labels=torch.arange(9)[None]).loss
    assert again.item() == pytest.approx(loss.item(), rel=1e-6)


def test_a_merged_adapter_is_not_added_twice() -> None:
    model = lora_model()
    ids = torch.arange(9)[None]
    expected = model(input_ids=ids).logits
    use_lean_layers(model)
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(input_ids=ids).logits, expected, rtol=1e-4, atol=1e-4)


def test_names_of_saved_weights_stay() -> None:
    model = lora_model()
    before = list(model.state_dict())
    use_lean_layers(model)
    assert list(model.state_dict()) == before


def test_less_is_kept_for_the_backward_pass() -> None:
    def kept_bytes(model: nn.Module) -> int:
        storages: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            output = model(input_ids=torch.zeros((1, 400), dtype=torch.long), use_cache=False).logits
        del output
        return sum(storages.values())

    model = lora_model()
    before = kept_bytes(model)
    use_lean_layers(model)
    # Two feed-forward layers keep two float32 activations less, 64 wide, for each of 400 tokens.
    assert before - kept_bytes(model) > 0.9 * 2 * 2 * 64 * 400 * 4
