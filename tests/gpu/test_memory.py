"""Memory of the GPU: in the log, and in the decision on gradient checkpointing."""

import pytest
import torch

from tests.tiny.models import tiny_model
from tests.tiny.training import tiny_trainer, uneven_rows
from tunesmith.models.checkpointing import measure_free_memory, resolve_gradient_checkpointing
from tunesmith.models.precision import resolve_precision
from tunesmith.training.io.settings import LoaderPolicy, LoaderSettings
from tunesmith.training.monitoring.log import LOG_FILE, read_log
from tunesmith.training.run import run_training

pytestmark = pytest.mark.gpu

# Far more than the toy rows hold: 131,072 tokens, of which the estimate makes some 500 MB.
LONG_BATCHES = {"per_device_train_batch_size": 256, "cutoff_len": 512, "gradient_checkpointing": "auto"}


def test_the_log_and_the_figures_tell_the_memory_of_the_gpu(gpu, run_on_device, tmp_path):
    torch.cuda.reset_peak_memory_stats(gpu)
    ballast = torch.zeros(50_000_000, dtype=torch.uint8, device=gpu)
    result = run_training(run_on_device(max_steps=2, logging_steps=1))
    for figures in (*read_log(tmp_path / "out" / LOG_FILE), result.metrics):
        assert figures["device_peak_memory_gb"] >= figures["device_memory_gb"] >= 0.05
    del ballast


@pytest.mark.parametrize("is_limited", [False, True])
def test_checkpointing_is_switched_on_where_a_step_would_not_fit(gpu, run_on_device, is_limited):
    if is_limited:
        torch.cuda.empty_cache()
        allowed = torch.cuda.memory_allocated(gpu) + 300_000_000
        torch.cuda.set_per_process_memory_fraction(allowed / torch.cuda.mem_get_info(gpu)[1], gpu)
        assert measure_free_memory(torch.device("cuda", 0)) == pytest.approx(300_000_000, rel=0.01)
    config = run_on_device(max_steps=1, **LONG_BATCHES)
    # Without the rows, whose few tokens would fit.
    choice = resolve_gradient_checkpointing(tiny_model("llama").to(gpu), config, resolve_precision(config, gpu))
    assert choice.enabled is is_limited
    assert "a step of 131,072 tokens" in choice.reason


def test_batches_are_pinned_for_the_way_to_the_gpu(gpu, tmp_path):
    for workers in (0, 2):
        trainer = tiny_trainer(
            tmp_path,
            uneven_rows(4),
            model=tiny_model("llama"),
            layout="flat",
            use_cpu=False,
            plan={"loading": LoaderPolicy(start=LoaderSettings(workers), pins_memory=True)},
        )
        batch = next(iter(trainer.get_train_dataloader()))
        assert batch["input_ids"].is_pinned()
        moved = trainer._prepare_inputs(batch)
        assert moved["input_ids"].device.type == "cuda"
        assert torch.equal(moved["input_ids"].cpu(), batch["input_ids"])
