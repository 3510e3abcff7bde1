"""What saves memory or time on GPUs alone: paged and 8-bit optimizers, offloading, fused kernels, 8-bit products."""

import importlib.util

import pytest
import torch

from tests.tiny.compressed import write_fp8_model, write_int8_model, write_mxfp4_model
from tests.tiny.models import tiny_model
from tunesmith.errors import ModelError
from tunesmith.models.offloading import ActivationOffload
from tunesmith.training.run import run_training

pytestmark = pytest.mark.gpu

FULL = {"finetuning_type": "full", "lora_rank": None, "learning_rate": 1e-3, "num_train_epochs": None, "max_steps": 4}
IDS = torch.arange(3, 131)[None]


def needs(package):
    """Skip a test whose package is not there."""
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"{package} is not installed")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"optim": "paged_adamw_8bit"}, marks=needs("bitsandbytes"), id="paged"),
        pytest.param({"optim": "adalomo", "max_grad_norm": 0}, marks=needs("lomo_optim"), id="adalomo"),
        pytest.param(
            {"use_galore": True, "galore_rank": 4, "optim": "adamw_8bit"}, marks=needs("galore_torch"), id="galore-8bit"
        ),
        pytest.param({"activation_offload": True, "gradient_checkpointing": True}, id="offload"),
        pytest.param({"fp8": True}, marks=needs("torchao"), id="fp8"),
        pytest.param({"enable_liger_kernel": True}, marks=needs("liger_kernel"), id="liger"),
    ],
)
def test_a_run_learns(gpu, run_on_device, settings):
    if settings.get("fp8") and torch.cuda.get_device_capability() < (8, 9):
        with pytest.raises(ModelError, match=r"compute capability 8.9"):
            run_training(run_on_device(bf16=True, **FULL, **settings))
        return
    result = run_training(run_on_device(bf16=True, logging_steps=1, **FULL, **settings))
    losses = [line["loss"] for line in result.state.log_history if "loss" in line]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("method", ["bnb", "torchao", "eetq"])
def test_compressed_weights_take_an_adapter(gpu, run_on_device, method):
    package = {"bnb": "bitsandbytes", "torchao": "torchao", "eetq": "kernels"}[method]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    settings = {"quantization_bit": 8, "quantization_method": method, "max_steps": 4, "num_train_epochs": None}
    result = run_training(run_on_device(bf16=True, logging_steps=1, **settings))
    losses = [line["loss"] for line in result.state.log_history if "loss" in line]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(write_fp8_model, id="fp8"),
        pytest.param(write_mxfp4_model, id="mxfp4"),
        pytest.param(write_int8_model, id="compressed-tensors", marks=needs("compressed_tensors")),
    ],
)
@pytest.mark.parametrize("kind", ["lora", "full"])
def test_weights_that_are_stored_in_few_bits_are_made_exact_and_trained(device, run_on_device, tmp_path, write, kind):
    write(tmp_path / "model")
    length = {"num_train_epochs": None, "max_steps": 4, "logging_steps": 1, "learning_rate": 1e-3}
    config = run_on_device(model_name_or_path=str(tmp_path / "model"), finetuning_type=kind, **length)
    result = run_training(config)
    losses = [line["loss"] for line in result.state.log_history if "loss" in line]
    assert losses[-1] < losses[0]


def test_activations_leave_the_device(gpu):
    peaks = {}
    for offloads in (False, True):
        model = tiny_model(layers=8, hidden_size=256, intermediate_size=1024).to(gpu).train()
        ids = IDS.repeat(32, 4).to(gpu)
        torch.cuda.reset_peak_memory_stats()
        offload = ActivationOffload(model.parameters())
        if offloads:
            with offload:
                loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        else:
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        peaks[offloads] = torch.cuda.memory_allocated()
        loss.backward()
    assert peaks[True] < 0.5 * peaks[False]
