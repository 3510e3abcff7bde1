import dataclasses

import pytest
import torch

from tests.tiny.runs import tiny_settings
from tunesmith.config import RunConfig, load_config
from tunesmith.runtime.ranks import Ranks
from tunesmith.training.arguments import PASSED_ON, USED_ELSEWHERE, build_training_arguments


def build(tmp_path, *, autocast_dtype=None, ranks=Ranks(), **settings):  # noqa: B008 - frozen
    config = load_config(tiny_settings(tmp_path, **settings), purpose="read")
    return config, build_training_arguments(config, autocast_dtype, ranks)


@pytest.mark.parametrize("group", sorted(PASSED_ON))
def test_every_setting_of_a_group_is_passed_on_or_used_elsewhere(group):
    fields = {field.name for field in dataclasses.fields(getattr(RunConfig(), group))}
    assert fields == set(PASSED_ON[group]) | set(USED_ELSEWHERE[group])
    assert set(PASSED_ON[group]).isdisjoint(USED_ELSEWHERE[group])


UNUSUAL = {
    "num_train_epochs": 2.5,
    "max_steps": 17,
    "per_device_train_batch_size": 3,
    "gradient_accumulation_steps": 5,
    "learning_rate": 0.0123,
    "lr_scheduler_type": "cosine",
    "optim": "adafactor",
    "weight_decay": 0.07,
    "adam_beta1": 0.8,
    "adam_beta2": 0.95,
    "adam_epsilon": 1e-7,
    "max_grad_norm": 0.3,
    "seed": 11,
    "data_seed": 12,
    "save_strategy": "epoch",
    "save_only_model": True,
    "per_device_eval_batch_size": 6,
    "logging_steps": 4,
    "logging_first_step": True,
    "run_name": "mine",
    "project": "proj",
    "dataloader_drop_last": True,
    "ddp_timeout": 77,
    "ddp_bucket_cap_mb": 13,
}


def test_settings_arrive_under_their_own_name(tmp_path):
    _, arguments = build(tmp_path, **UNUSUAL)
    assert {name: getattr(arguments, name) for name in UNUSUAL} == UNUSUAL


def test_evaluation_settings_arrive(tmp_path):
    settings = {
        "val_size": 4,
        "eval_strategy": "steps",
        "eval_steps": 3,
        "save_steps": 6,
        "eval_delay": 2,
        "eval_on_start": True,
        "load_best_model_at_end": True,
        "metric_for_best_model": "accuracy",
        "compute_accuracy": True,
    }
    _, arguments = build(tmp_path, **settings)
    assert (arguments.eval_steps, arguments.save_steps, arguments.eval_delay) == (3, 6, 2)
    assert arguments.eval_on_start
    assert (arguments.metric_for_best_model, arguments.greater_is_better) == ("accuracy", True)


def test_a_warm_up_ratio_becomes_a_share_of_steps(tmp_path):
    _, arguments = build(tmp_path, warmup_ratio=0.1)
    assert arguments.get_warmup_steps(200) == 20


@pytest.mark.parametrize(
    ("dtype", "flags"),
    [(None, (False, False)), (torch.bfloat16, (True, False))],
)
def test_number_formats_follow_the_precision_of_the_model(tmp_path, dtype, flags):
    _, arguments = build(tmp_path, autocast_dtype=dtype)
    assert (arguments.bf16, arguments.fp16) == flags


def test_early_stopping_looks_at_the_evaluation_loss(tmp_path):
    _, arguments = build(tmp_path, val_size=4, eval_strategy="steps", eval_steps=2, early_stopping_steps=3)
    assert (arguments.metric_for_best_model, arguments.greater_is_better) == ("loss", False)


def test_a_backend_for_processes_does_not_break_a_run_of_one(tmp_path):
    _, arguments = build(tmp_path, ddp_backend="gloo")
    assert arguments.world_size == 1


def test_rotation_is_not_left_to_transformers(tmp_path):
    _, arguments = build(tmp_path, save_total_limit=1)
    assert arguments.save_total_limit is None


def test_a_process_computes_on_one_device_whatever_the_machine_holds(tmp_path):
    _, arguments = build(tmp_path)
    assert (arguments.n_gpu, arguments.train_batch_size) == (0, 4)
    arguments._n_gpu = 4  # what transformers finds on a machine with four GPUs, and would deal the batch out to
    assert (arguments.n_gpu, arguments.train_batch_size) == (1, 4)


def test_a_share_of_zero_leaves_the_warm_up_steps_alone(tmp_path):
    _, arguments = build(tmp_path, warmup_ratio=0, warmup_steps=5)
    assert arguments.get_warmup_steps(200) == 5
