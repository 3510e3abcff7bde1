"""The settings of a run as `transformers.Seq2SeqTrainingArguments`."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from transformers import Seq2SeqTrainingArguments

from tunesmith.config import RunConfig
from tunesmith.config.lean_optimizers import LeanOptimizerSettings
from tunesmith.config.optimizers import OURS_ALONE
from tunesmith.runtime.ranks import Ranks

PASSED_ON: Mapping[str, tuple[str, ...]] = {
    "training": (
        "output_dir",
        "do_train",
        "do_eval",
        "do_predict",
        "num_train_epochs",
        "max_steps",
        "use_cpu",
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "learning_rate",
        "lr_scheduler_type",
        "lr_scheduler_kwargs",
        "warmup_steps",
        "optim",
        "optim_args",
        "weight_decay",
        "adam_beta1",
        "adam_beta2",
        "adam_epsilon",
        "max_grad_norm",
        "tf32",
        "torch_compile",
        "torch_compile_backend",
        "torch_compile_mode",
        "seed",
        "data_seed",
        "full_determinism",
        "save_strategy",
        "save_steps",
        "save_only_model",
        "per_device_eval_batch_size",
        "eval_strategy",
        "eval_steps",
        "eval_delay",
        "eval_on_start",
        "load_best_model_at_end",
        "metric_for_best_model",
        "greater_is_better",
        "predict_with_generate",
        "logging_steps",
        "logging_first_step",
        "run_name",
        "project",
    ),
    "loading": ("dataloader_drop_last",),
    "distributed": (
        "ddp_timeout",
        "ddp_find_unused_parameters",
        "ddp_bucket_cap_mb",
        "ddp_broadcast_buffers",
    ),
}
"""Settings that transformers knows by the same name and acts on as they are."""

USED_ELSEWHERE: Mapping[str, Mapping[str, str]] = {
    "training": {
        "warmup_ratio": "here, as warmup_steps below 1",
        "bf16": "models.precision decides",
        "fp16": "models.precision decides",
        "pure_bf16": "models.precision decides",
        "fp8": "models.load",
        "fp8_backend": "models.load",
        "neftune_noise_alpha": "training.embedding_noise",
        "overwrite_output_dir": "a configuration rule",
        "save_total_limit": "training.checkpoints",
        "resume_from_checkpoint": "training.resume",
        "early_stopping_steps": "training.assembly, and metric_for_best_model here",
        "compute_accuracy": "training.assembly",
        "report_to": "here, as a list",
        "logging_dir": "training.assembly",
        "plot_loss": "training.results",
        "include_effective_tokens_per_second": "training.results",
        "callbacks": "training.assembly",
        "sample_steps": "training.callbacks.samples",
        "sample_prompts": "training.callbacks.samples",
        **{field.name: "training.optimizers" for field in fields(LeanOptimizerSettings)},
    },
    "loading": {
        "dataloader_num_workers": "training.io.settings",
        "dataloader_pin_memory": "training.io.settings",
        "dataloader_prefetch_factor": "training.io.settings",
        "dataloader_persistent_workers": "training.io.settings",
        "dataloader_restarts": "training.io.settings",
        "data_timeout_seconds": "training.io.settings",
        "padding_free": "training.layout",
        "prefix_sharing": "training.prefix_sharing",
        "preprocessing_num_workers": "data.pipeline",
        "preprocessing_batch_size": "data.pipeline",
        "overwrite_cache": "data.pipeline",
        "dataset_cache_dir": "data.pipeline",
        "tokens_per_device_batch": "training.io.token_batches",
        "tokenized_path": "data.tokenized",
        "train_sampling_strategy": "training.assembly",
        "group_by_length": "training.assembly",
        "disable_shuffling": "training.assembly",
    },
    "distributed": {"ddp_backend": "here, where there are several processes"},
}
"""Where each of the other settings of these groups takes effect."""


class OneDeviceArguments(Seq2SeqTrainingArguments):
    """Arguments of a process that computes on one device, whatever else the machine holds.

    A process without companions on a machine with several GPUs gets `nn.DataParallel` from transformers, which deals
    out the rows of a batch to all of them: a batch without padding is one row. One process per GPU is what
    training.launch starts.
    """

    @property
    def n_gpu(self) -> int:
        """Number of GPUs of this process: 0 or 1."""
        return min(1, int(super().n_gpu))


def build_training_arguments(config: RunConfig, autocast_dtype: torch.dtype | None, ranks: Ranks) -> OneDeviceArguments:
    """Return what transformers' Trainer is configured with; several processes find each other in here.

    Args:
        config: Checked settings.
        autocast_dtype: Number format of the forward pass where it differs from that of the trained weights.
        ranks: Place of this process.
    """
    options: dict[str, Any] = {
        name: getattr(getattr(config, group), name) for group, names in PASSED_ON.items() for name in names
    }
    training = config.training
    if training.optim in OURS_ALONE:  # transformers refuses a name that it does not know
        options["optim"] = "adamw_torch"
    if ranks.world_size > 1:  # accelerate takes a named backend as proof of several processes
        options["ddp_backend"] = config.distributed.ddp_backend
    if training.warmup_ratio:  # 0 is no share, and must not overrule warmup_steps
        options["warmup_steps"] = training.warmup_ratio
    if training.early_stopping_steps is not None and training.metric_for_best_model is None:
        options["metric_for_best_model"] = "loss"
    return OneDeviceArguments(
        **options,
        bf16=autocast_dtype is torch.bfloat16,
        fp16=autocast_dtype is torch.float16,
        report_to=list(training.report_to),
        # Off because it is done here: bars and printed dictionaries by monitoring/, bad numbers by the guard (the
        # filter hides them from the log), columns by the collator, random order by the samplers.
        disable_tqdm=True,
        logging_nan_inf_filter=False,
        remove_unused_columns=False,
        restore_callback_states_from_checkpoint=True,
        # A stream knows its place; skipping what was used would read it all again.
        ignore_data_skip=config.data.streaming,
    )
