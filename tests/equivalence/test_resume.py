"""A run that was interrupted and resumed ends with the weights, rows and log of one that was not."""

import json
import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.tiny.models import tiny_model
from tests.tiny.training import StopAfter, tiny_trainer, uneven_rows, weights
from tunesmith.data.collators import build_collator
from tunesmith.training.monitoring.account import PHASES
from tunesmith.training.monitoring.log import LOG_FILE, LogFile, read_log
from tunesmith.training.resume import resolve_resume_point

TIMES = (
    "tokens_per_second",
    "padded_tokens_per_second",
    "data_wait_share",
    "step_seconds",
    *(f"{phase}_share" for phase in PHASES),
    "throughput",
    "elapsed_time",
    "remaining_time",
    "memory_gb",
    "peak_memory_gb",
    "eval_runtime",
    "eval_samples_per_second",
    "eval_steps_per_second",
)


def build_model(kind):
    # Dropout inside and, for LoRA, before the adapter: the random state has to be resumed too.
    model = tiny_model("llama", attention_dropout=0.2)
    if kind == "full":
        return model
    torch.manual_seed(5)
    return get_peft_model(model, LoraConfig(r=2, lora_dropout=0.3, target_modules="all-linear", task_type="CAUSAL_LM"))


class RecordingCollator:
    """Notes which rows were laid out in which order."""

    def __init__(self):
        self.rows = []
        self._collate = build_collator("padded", pad_token_id=417)

    def __call__(self, rows):
        self.rows.append([row["row_id"] for row in rows])
        return self._collate(rows)


def run(folder, kind, *, callbacks=(), resume=None, max_steps=-1):
    collator = RecordingCollator()
    trainer = tiny_trainer(
        folder,
        uneven_rows(22),
        model=build_model(kind),
        shuffle=True,
        collator=collator,
        callbacks=callbacks,
        evals=uneven_rows(5, seed=9),
        num_train_epochs=2,
        max_steps=max_steps,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,  # 6 steps an epoch, the last one of one micro-batch
        optim="adamw_torch",
        learning_rate=1e-2,
        lr_scheduler_type="cosine",
        max_grad_norm=1.0,
        weight_decay=0.1,
        logging_steps=2,
        save_strategy="steps",
        save_steps=3,
        eval_strategy="steps",
        eval_steps=3,
    )
    trainer.add_callback(LogFile(folder / LOG_FILE, trainer.meter))
    if resume is not None:
        trainer.restore(resume)
    result = trainer.train(resume_from_checkpoint=None if resume is None else str(resume.path))
    log = [{key: value for key, value in line.items() if key not in TIMES} for line in read_log(folder / LOG_FILE)]
    return trainer, collator.rows, log, result


@pytest.fixture(scope="module", params=["full", "lora"])
def uninterrupted(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    trainer, rows, log, result = run(folder, request.param)
    return request.param, folder, trainer, rows, log, result


# 3 and 9 are in the middle of an epoch and of a logging window, 6 is the end of an epoch, 5 was not to be saved.
@pytest.mark.parametrize(("step", "num_batches_left"), [(3, 16), (5, 12), (6, 11), (9, 5)])
def test_resumed_run_sees_the_remaining_rows_and_ends_like_the_uninterrupted_one(
    tmp_path, uninterrupted, step, num_batches_left
):
    kind, _, whole, whole_rows, whole_log, _ = uninterrupted
    stop = StopAfter(step)
    first, _, _, _ = run(tmp_path, kind, callbacks=[stop])
    assert stop.step == step
    assert first.state.global_step == step
    point = resolve_resume_point(setting=True, output_dir=tmp_path)
    assert point.manifest.step == step
    second, rows, log, _ = run(tmp_path, kind, resume=point)
    assert second.state.global_step == 12
    expected, found = weights(whole.model), weights(second.model)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert log == whole_log
    assert second.meter.mean_loss == whole.meter.mean_loss
    evaluation = [0, 1, 2, 3, 4]  # the whole evaluation set at once, between the training batches
    expected = [batch for batch in whole_rows if batch != evaluation]
    left = [batch for batch in rows if batch != evaluation]
    assert left == expected[-len(left) :]
    assert len(left) == num_batches_left  # two micro-batches a step, one at the end of either epoch


def test_a_killed_run_resumes_and_its_log_is_cut_back(tmp_path, uninterrupted):
    """The log goes further than the last checkpoint, and its last line was cut off in writing."""
    kind, folder, whole, _, whole_log, _ = uninterrupted
    for name in ("checkpoint-3", "checkpoint-6", LOG_FILE):
        source = folder / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    with (tmp_path / LOG_FILE).open("a") as log:
        log.write(json.dumps({"current_steps": 13})[:-4])
    second, _, log, _ = run(tmp_path, kind, resume=resolve_resume_point(setting=True, output_dir=tmp_path))
    assert log == whole_log
    expected, found = weights(whole.model), weights(second.model)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_resuming_a_finished_run_changes_nothing(tmp_path, uninterrupted):
    kind, folder, whole, _, whole_log, _ = uninterrupted
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    trainer, _, log, _ = run(tmp_path, kind, resume=resolve_resume_point(setting=True, output_dir=tmp_path))
    assert trainer.state.global_step == 12
    assert log == whole_log
    expected, found = weights(whole.model), weights(trainer.model)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert trainer.meter.mean_loss == whole.meter.mean_loss


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_resuming_a_run_that_ended_within_an_epoch_takes_no_further_step(tmp_path, kind):
    whole, _, whole_log, _ = run(tmp_path, kind, max_steps=4)
    expected = {name: value.clone() for name, value in weights(whole.model).items()}
    for _ in range(2):
        point = resolve_resume_point(setting=True, output_dir=tmp_path)
        trainer, rows, log, _ = run(tmp_path, kind, resume=point, max_steps=4)
        assert (point.manifest.step, trainer.state.global_step, rows) == (4, 4, [])
        assert log == whole_log
        assert all(torch.equal(value, expected[name]) for name, value in weights(trainer.model).items())


def test_adapters_save_only_the_adapter(uninterrupted):
    kind, folder, *_ = uninterrupted
    names = {path.name for path in (folder / "checkpoint-3").iterdir()}
    common = {"manifest.json", "run_state.json", "trainer_state.json", "optimizer.pt", "scheduler.pt", "rng_state.pth"}
    adapter = {"adapter_config.json", "adapter_model.safetensors", "README.md"}
    full = {"config.json", "generation_config.json", "model.safetensors"}
    assert names == common | (adapter if kind == "lora" else full)
