"""The memory estimate against what a step really keeps."""

import pytest
import torch

from tests.tiny.models import tiny_model
from tunesmith.config import AdapterConfig
from tunesmith.models.adapters import apply_adapters
from tunesmith.models.checkpointing import (
    enable_gradient_checkpointing,
    measure_free_memory,
    resolve_gradient_checkpointing,
)
from tunesmith.models.lean import use_lean_layers
from tunesmith.models.memory import Keeping, estimate_training_memory
from tunesmith.models.precision import Precision
from tunesmith.training.optimizers.sets import InBackward

FP32 = Precision(torch.float32, torch.float32, None, "test")
TOKENS = 512


def kept_bytes(model, ids) -> int:
    """Bytes that autograd holds on to between forward and backward, each piece of memory once, without weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def pack(value):
        storage = value.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        output = model(input_ids=ids, use_cache=False, logits_to_keep=1)
    del output
    return sum(kept.values())


def adapted(kind: str, **shape):
    model = tiny_model("llama", layers=4, hidden_size=64, intermediate_size=192, max_position_embeddings=1024, **shape)
    config = AdapterConfig(finetuning_type=kind)
    return apply_adapters(model, config, [], trained_dtype=torch.float32, is_trainable=True).model


@pytest.mark.parametrize(("kind", "is_lean"), [("full", False), ("lora", False), ("lora", True)])
def test_activations_are_estimated_within_a_factor_of_one_and_a_half(kind, is_lean):
    model = adapted(kind)
    if is_lean:
        use_lean_layers(model)
    model.set_attn_implementation("sdpa") if kind == "full" else model.get_base_model().set_attn_implementation("sdpa")
    measured = kept_bytes(model, torch.randint(0, 400, (1, TOKENS)))
    estimated = estimate_training_memory(model, tokens=TOKENS, compute_dtype=torch.float32).activations
    assert 1 / 1.5 < estimated / measured < 1.5, (estimated, measured)


def test_lean_feed_forward_layers_are_known_to_keep_two_tensors_less():
    ordinary, lean = adapted("lora"), adapted("lora")
    use_lean_layers(lean)
    ids = torch.randint(0, 400, (1, TOKENS))
    estimates = [
        estimate_training_memory(model, tokens=TOKENS, compute_dtype=torch.float32).activations
        for model in (ordinary, lean)
    ]
    assert estimates[0] - estimates[1] == 4 * 2 * 192 * 4 * TOKENS  # layers, tensors, width, bytes
    assert kept_bytes(ordinary, ids) - kept_bytes(lean, ids) >= estimates[0] - estimates[1]


def test_weights_gradients_and_optimizer_are_exact():
    model = adapted("full")
    weights = sum(parameter.numel() for parameter in model.parameters())
    found = estimate_training_memory(model, tokens=8, compute_dtype=torch.float32)
    assert (found.weights, found.gradients, found.optimizer) == (4 * weights, 4 * weights, 8 * weights)
    assert estimate_training_memory(model, tokens=8, compute_dtype=torch.float32, optimizer="sgd").optimizer == 0


def test_lora_needs_gradients_and_optimizer_for_its_matrices_only():
    model = adapted("lora")
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    found = estimate_training_memory(model, tokens=8, compute_dtype=torch.float32)
    assert (found.gradients, found.optimizer) == (4 * trained, 8 * trained)


@pytest.mark.parametrize(
    "settings",
    [{"lora_dropout": 0.1}, {"lora_target": ("q_proj",)}, {"use_dora": True}, {"finetuning_type": "full"}],
    ids=str,
)
def test_feed_forward_layers_that_cannot_be_lean_are_counted_in_full(settings):
    def built():
        model = tiny_model("llama", layers=4, hidden_size=64, intermediate_size=192, max_position_embeddings=1024)
        config = AdapterConfig(**settings)
        return apply_adapters(model, config, [], trained_dtype=torch.float32, is_trainable=True).model

    ordinary, replaced = built(), built()
    use_lean_layers(replaced)
    found = [
        estimate_training_memory(model, tokens=TOKENS, compute_dtype=torch.float32).activations
        for model in (ordinary, replaced)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("is_lean", [False, True])
def test_activations_in_half_precision_are_estimated_within_a_factor_of_one_and_a_half(is_lean):
    model = adapted("lora").to(torch.bfloat16)
    if is_lean:
        use_lean_layers(model)
    model.get_base_model().set_attn_implementation("sdpa")
    measured = kept_bytes(model, torch.randint(0, 400, (1, TOKENS)))
    estimated = estimate_training_memory(model, tokens=TOKENS, compute_dtype=torch.bfloat16).activations
    assert 1 / 1.5 < estimated / measured < 1.5, (estimated, measured)


def test_updates_in_the_backward_pass_keep_the_largest_gradient_alone():
    model = adapted("full")
    trained = list(model.parameters())
    seen = []

    def note(_):
        seen.append(sum(4 * each.numel() for each in trained if each.grad is not None))

    for parameter in trained:  # before the hooks that update and free
        parameter.register_post_accumulate_grad_hook(note)
    InBackward(torch.optim.SGD, [{"params": trained, "lr": 0.0}])
    ids = torch.randint(0, 400, (1, 16))
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    found = estimate_training_memory(model, tokens=8, compute_dtype=torch.float32, updates_in_backward=True)
    assert found.gradients == max(seen) == 4 * 420 * 64  # the embedding, which is the head too
    assert len(seen) == len(trained)


@pytest.mark.parametrize(
    ("settings", "keeps_gradients"),
    [
        ({}, True),
        ({"optimizer_in_backward": True, "max_grad_norm": 0}, False),
        ({"optim": "lomo", "max_grad_norm": 0}, False),
    ],
)
def test_the_run_s_estimate_knows_who_updates_in_the_backward_pass(run_config, settings, keeps_gradients):
    if settings.get("optim") == "lomo":
        pytest.importorskip("lomo_optim")
    config = run_config(finetuning_type="full", **settings)
    model = adapted("full")
    found = resolve_gradient_checkpointing(model, config, FP32, most_tokens=8).memory
    everything = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert found.gradients == (everything if keeps_gradients else 4 * 420 * 64)


def test_checkpointing_keeps_one_layer_and_the_inputs_of_the_others():
    model = adapted("full")
    sizes = {
        name: estimate_training_memory(model, tokens=TOKENS, compute_dtype=torch.float32, keeping=keeping).activations
        for name, keeping in {
            "all": Keeping(),
            "inputs": Keeping(recomputes=True),
            "every second": Keeping(recomputes=True, every=2),
            "products": Keeping(recomputes=True, products=True),
            "elsewhere": Keeping(offloads=True),
        }.items()
    }
    assert sizes["inputs"] < sizes["all"] / 2.5
    layer = sizes["elsewhere"] - 4 * 64 * 4 * TOKENS  # one layer is on the device at a time
    assert sizes["all"] == 4 * layer + 4 * 64 * 4 * TOKENS
    assert sizes["inputs"] - sizes["elsewhere"] == 4 * 64 * 4 * TOKENS  # the inputs of four layers, in float32
    assert sizes["every second"] - sizes["elsewhere"] == 2 * layer + 2 * 64 * 4 * TOKENS
    assert sizes["inputs"] < sizes["products"] < sizes["all"]


@pytest.mark.parametrize("every", [1, 2])
def test_what_checkpoints_keep_is_estimated_within_a_factor_of_one_and_a_half(every):
    model = adapted("full").train()
    model.set_attn_implementation("sdpa")
    enable_gradient_checkpointing(model, use_reentrant=False, every=every)
    measured = kept_bytes(model, torch.randint(0, 400, (1, TOKENS)))
    estimated, one_layer = (
        estimate_training_memory(model, tokens=TOKENS, compute_dtype=torch.float32, keeping=keeping).activations
        for keeping in (Keeping(recomputes=True, every=every), Keeping(offloads=True))
    )
    ends = 4 * 64 * 4 * TOKENS  # embedding, last norm and the head's input, which are in both
    now = estimated - (one_layer - ends)  # one layer is computed again later, and not kept now
    assert 1 / 1.5 < now / measured < 1.5, (now, measured)


@pytest.mark.parametrize(("batch_size", "expected"), [(1, False), (2**24, True)])
def test_auto_takes_checkpointing_only_when_a_step_would_not_fit(run_config, batch_size, expected):
    config = run_config(per_device_train_batch_size=batch_size)
    choice = resolve_gradient_checkpointing(adapted("lora"), config, FP32)
    assert choice.enabled is expected
    assert "besides the weights" in choice.reason


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"gradient_checkpointing": True}, True),
        ({"gradient_checkpointing": False}, False),
        ({"disable_gradient_checkpointing": True}, False),
    ],
)
def test_explicit_checkpointing_is_obeyed(run_config, settings, expected):
    assert resolve_gradient_checkpointing(adapted("lora"), run_config(**settings), FP32).enabled is expected


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing_gives_adapters_the_same_gradients(use_reentrant):
    ids = torch.randint(0, 400, (2, 16), generator=torch.Generator().manual_seed(1))
    gradients = []
    for enabled in (False, True):
        model = adapted("lora")
        for index, parameter in enumerate(p for p in model.parameters() if p.requires_grad):
            parameter.data = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)) * 0.1
        if enabled:
            enable_gradient_checkpointing(model, use_reentrant=use_reentrant)
        model.train()(ids, labels=ids, use_cache=False).loss.backward()
        gradients.append([p.grad for p in model.parameters() if p.requires_grad])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, checkpointed)


@pytest.mark.parametrize(
    ("driver_free", "share", "expected"),
    [
        (50, 1.0, 55),  # 20 are allocated and 5 more kept in reserve: free for this process
        (50, 0.3, 10),  # a limit of 30 leaves 10
        (50, 0.1, 0),
    ],
)
def test_free_memory_of_a_gpu_counts_the_reserve_and_a_limit(monkeypatch, driver_free, share, expected):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (driver_free, 100))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 20)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 25)
    monkeypatch.setattr(torch.cuda.memory, "get_per_process_memory_fraction", lambda device: share)
    assert measure_free_memory(torch.device("cuda", 0)) == expected
