"""Runs in every number format: what is stored and computed in what, and that it learns."""

import pytest
import torch

from tests.tiny.models import tiny_model
from tests.tiny.training import largest_difference, tiny_trainer, uneven_rows, weights
from tunesmith.training.callbacks.guards import NumberGuard
from tunesmith.training.monitoring.log import LOG_FILE, read_log
from tunesmith.training.run import run_training

pytestmark = pytest.mark.gpu

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
TUNINGS = {
    "lora": {},
    "full": {"finetuning_type": "full"},
    "freeze": {"finetuning_type": "freeze", "freeze_trainable_layers": 1},
    "embeddings": {"additional_target": "embed_tokens"},
}


def types_of(model, *, trained):
    return {parameter.dtype for parameter in model.parameters() if parameter.requires_grad is trained}


@pytest.fixture
def check_run(device, run_on_device, tmp_path):
    """Train, check that it learnt and where its weights are, and return the result and the plan."""

    def check(**settings):
        chosen = {"num_train_epochs": 4, "logging_steps": 1, "save_strategy": "no", **settings}
        result = run_training(run_on_device(**chosen))
        losses = [line["loss"] for line in read_log(tmp_path / "out" / LOG_FILE)]
        assert losses[-1] < losses[0]
        assert {parameter.device.type for parameter in result.trainer.model.parameters()} == {device.type}
        return result, (tmp_path / "out" / "plan.txt").read_text(encoding="utf-8")

    return check


@pytest.mark.parametrize("tuning", TUNINGS)
def test_auto_stores_frozen_weights_in_bf16_and_trains_in_fp32(gpu, check_run, tuning):
    if torch.cuda.get_device_capability(gpu)[0] < 8:
        pytest.skip("this GPU does not compute bf16 natively, so auto is fp32")
    result, plan = check_run(**TUNINGS[tuning])
    assert types_of(result.trainer.model, trained=True) == {FP32}
    assert types_of(result.trainer.model, trained=False) == (set() if tuning == "full" else {BF16})
    assert "computed in bf16 (auto: compute capability" in plan


@pytest.mark.parametrize("tuning", TUNINGS)
def test_bf16_can_be_asked_for(check_run, tuning):
    result, plan = check_run(bf16=True, **TUNINGS[tuning])
    assert types_of(result.trainer.model, trained=True) == {FP32}
    assert "computed in bf16 (bf16 was asked for" in plan


@pytest.mark.parametrize("tuning", TUNINGS)
def test_fp16_trains_fp32_weights_under_a_loss_scaler(gpu, check_run, tuning):
    result, plan = check_run(fp16=True, **TUNINGS[tuning])
    assert types_of(result.trainer.model, trained=True) == {FP32}
    assert types_of(result.trainer.model, trained=False) == (set() if tuning == "full" else {FP16})
    assert result.trainer.accelerator.scaler.get_scale() > 1.0
    assert "computed in fp16 (fp16 was asked for)" in plan


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_pure_bf16_keeps_nothing_in_fp32(check_run, tuning):
    result, _ = check_run(pure_bf16=True, **TUNINGS[tuning])
    assert types_of(result.trainer.model, trained=True) == {BF16}
    assert types_of(result.trainer.model, trained=False) <= {BF16}


def test_tf32_passes_the_checks_of_a_run_in_fp32(gpu, check_run):
    check_run(bf16=False, tf32=True, finetuning_type="full")
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"


def test_a_step_that_overflows_in_fp16_is_skipped_and_the_run_goes_on(gpu, tmp_path):
    model = tiny_model("llama")
    trainer = tiny_trainer(tmp_path, uneven_rows(8), model=model, max_grad_norm=1.0, use_cpu=False, fp16=True)
    trainer.add_callback(NumberGuard(trainer.step_record, str, scales_loss=True))
    calls = []

    def overflow_in_step_two(gradient):
        calls.append(weights(model))
        return gradient * float("inf") if len(calls) == 2 else gradient

    model.model.layers[0].mlp.down_proj.weight.register_hook(overflow_in_step_two)
    trainer.accelerator.scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)  # nothing else overflows
    trainer.train()
    assert len(calls) == 4
    assert trainer.accelerator.scaler.get_scale() == 2.0**9
    assert largest_difference(calls[1], calls[2]) == 0.0
    assert largest_difference(calls[2], calls[3]) > 0.0
