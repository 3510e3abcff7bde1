"""A run that was interrupted and resumed ends with the bits of one that was not, on a GPU too."""

import os
import signal

import pytest
import torch
from transformers import TrainerCallback

from tests.tiny.training import weights
from tunesmith.training.monitoring.log import LOG_FILE, read_log
from tunesmith.training.run import run_training

pytestmark = pytest.mark.gpu

COMPARED = ("current_steps", "loss", "lr", "grad_norm", "epoch", "total_tokens")


class InterruptAtThree(TrainerCallback):
    """Sends this process what Ctrl-C sends, during the third step."""

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 2:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("tuning", ["lora", "full"])
@pytest.mark.parametrize("precision", ["auto", "fp16"])
def test_a_resumed_run_ends_with_the_same_bits(request, device, run_on_device, tmp_path, precision, tuning):
    if precision == "fp16":
        request.getfixturevalue("gpu")
    # Dropout draws from the device's own random state, which therefore has to be in the checkpoint.
    settings = {"lora_dropout": 0.3} if tuning == "lora" else {"finetuning_type": "full", "neftune_noise_alpha": 5}
    settings |= {"num_train_epochs": 2, "logging_steps": 1, "full_determinism": True, "gradient_accumulation_steps": 2}
    settings |= {"fp16": True} if precision == "fp16" else {}
    whole = run_training(run_on_device(output_dir=str(tmp_path / "whole"), **settings))
    parts = str(tmp_path / "parts")
    name = f"{__name__}:InterruptAtThree"
    assert run_training(run_on_device(output_dir=parts, callbacks=name, **settings)).is_interrupted
    resumed = run_training(run_on_device(output_dir=parts, resume_from_checkpoint=True, **settings))
    expected, found = weights(whole.trainer.model), weights(resumed.trainer.model)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    logs = [
        [{key: line[key] for key in COMPARED} for line in read_log(tmp_path / run / LOG_FILE)]
        for run in ("whole", "parts")
    ]
    assert logs[0] == logs[1]
    checkpoint = tmp_path / "parts" / "checkpoint-3"
    state = torch.load(checkpoint / "rng_state.pth", weights_only=False)
    assert ("cuda" in state) == (device.type == "cuda")
    assert (checkpoint / "scaler.pt").is_file() == (precision == "fp16")
