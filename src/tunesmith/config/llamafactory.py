"""Keys of LLaMA-Factory and `transformers.TrainingArguments` that have no meaning here yet, and older spellings.

A key in this file is never accepted and ignored: it is refused, unless its value asks for what happens anyway.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cache

from tunesmith.config.coercion import is_null

ALL_STAGES = ("pt", "sft", "rm", "ppo", "dpo", "kto", "grpo")
"""Stages that a file may have a section `<stage>_args` for, whether they can be run yet or not."""

_SWITCHES_BY_FEATURE: Mapping[str, str] = {
    "LongLoRA's shifted attention, which transformers has had no place for since 4.48: for long rows set rope_scaling, "
    "packing and gradient_checkpointing": "shift_attn",
    "faster kernels": "use_unsloth use_unsloth_gc use_v1_kernels",
    "liger kernels under transformers' name; here it is enable_liger_kernel": "use_liger_kernel",
    "casting single layers (the loss is computed in float32 anyway)": "upcast_lmhead_output",
    "CPU experts": "use_kt kt_use_lora_experts",
    "images, video and audio": "image_do_pan_and_scan crop_to_patches use_audio_in_video freeze_language_model",
    "quantized export and other export formats": "export_legacy_format",
    "vLLM": "vllm_enforce_eager",
    "streaming": "data_shared_file_system",
    "evaluation of each data set apart": "eval_on_each_dataset",
    "PPO": "ppo_score_norm ppo_whiten_rewards",
    "SwanLab beyond `report_to: swanlab`": "use_swanlab",
    "other loss functions": "use_dft_loss use_asft_loss use_eaft_loss",
    "Megatron and HyperParallel": "use_mca use_megatron_bridge use_hyper_parallel sequence_parallel"
    " use_packed_sequences export_hf_on_finish",
    "profiling": "enable_torch_profiler",
    "FP8": "fp8_enable_fsdp_float8_all_gather",
    "evaluation in another number type": "bf16_full_eval fp16_full_eval",
    "finding the batch size": "auto_find_batch_size",
    "metrics batch by batch": "batch_eval_metrics prediction_loss_only eval_use_gather_object",
    "counting input tokens in transformers": "include_num_input_tokens_seen include_tokens_per_second",
    "checkpoints on every node": "save_on_each_node",
    "checkpoints on a signal": "enable_jit_checkpoint",
    "pushing to a hub": "push_to_hub hub_private_repo hub_always_push",
    "resuming without going over the data": "ignore_data_skip restore_callback_states_from_checkpoint",
    "other samplers": "sortish_sampler",
    "static graphs in DDP": "ddp_static_graph",
    "caching keys and values in training": "use_cache",
    "hiding the progress bar": "disable_tqdm",
}
"""Switches by what they are for; off (false) is what happens anyway."""

_VALUES_BY_FEATURE: Mapping[str, str] = {
    "mixture of depths": "mixture_of_depths",
    "mixture-of-experts losses": "moe_aux_loss_coef",
    "offloading to disk": "offload_folder",
    "Modelers hub": "om_hub_token",
    "models spread over devices": "device_map quantization_device_map",
    "CPU experts": "kt_cpu_activation kt_weight_path kt_non_expert_weight_path kt_expert_checkpoint_path"
    " kt_lora_expert_num kt_lora_expert_intermediate_size",
    "images, video and audio": "image_max_pixels image_min_pixels video_max_pixels video_min_pixels video_fps"
    " video_maxlen audio_sampling_rate media_dir freeze_vision_tower freeze_multi_modal_projector",
    "quantized export and other export formats": "export_quantization_bit export_quantization_dataset"
    " export_quantization_nsamples export_quantization_maxlen",
    "pushing to a hub": "export_hub_model_id hub_model_id hub_token hub_strategy hub_revision",
    "vLLM": "vllm_maxlen vllm_gpu_util vllm_max_lora_rank vllm_config",
    "SGLang": "sglang_maxlen sglang_mem_fraction sglang_tp_size sglang_config sglang_lora_backend",
    "other settings for generating in evaluation": "eval_num_beams generation_max_length generation_num_beams"
    " generation_config",
    "targets of their own for OFT (`lora_target` decides)": "oft_target",
    "PPO": "ppo_buffer_size ppo_epochs ppo_target reward_model reward_model_adapters"
    " reward_model_quantization_bit reward_model_type",
    "SwanLab beyond `report_to: swanlab`": "swanlab_project swanlab_workspace swanlab_run_name swanlab_mode"
    " swanlab_api_key swanlab_logdir swanlab_lark_webhook_url swanlab_lark_secret",
    "other loss functions": "asft_alpha eaft_alpha",
    "Megatron and HyperParallel": "hyper_parallel_args hyper_parallel_cp_size tensor_model_parallel_size"
    " pipeline_model_parallel_size expert_model_parallel_size context_parallel_size"
    " virtual_pipeline_model_parallel_size recompute_granularity recompute_method recompute_num_layers"
    " account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split bias_activation_fusion"
    " apply_rope_fusion masked_softmax_fusion cross_entropy_loss_fusion moe_grouped_gemm moe_token_dispatcher_type"
    " calculate_per_token_loss use_distributed_optimizer overlap_param_gather overlap_grad_reduce mixed_precision"
    " megatron_pretrained_checkpoint extra_config",
    "benchmarks": "task task_dir batch_size lang n_shot save_dir download_mode",
    "Ray": "ray_num_workers ray_init_kwargs master_addr master_port ray_run_name ray_storage_path"
    " resources_per_worker placement_strategy",
    "profiling": "profiler_output_dir profiler_wait_steps profiler_warmup_steps profiler_active_steps profiler_repeat"
    " profiler_record_shapes profiler_profile_memory profiler_with_stack profile_modules",
    "optimizers that act on chosen modules": "optim_target_modules",
    "settings of transformers' own gradient checkpointing": "gradient_checkpointing_kwargs activation_checkpointing"
    " activation_checkpointing_kwargs",
    "faster kernels": "liger_kernel_config",
    "emptying the device cache": "torch_empty_cache_steps",
    "log levels of transformers": "log_level log_level_replica",
    "trackio beyond `report_to: trackio`": "trackio_space_id trackio_bucket_id trackio_static_space_id",
    "evaluation in parts": "eval_accumulation_steps",
    "metrics with inputs": "include_for_metrics",
    "DeepSpeed": "deepspeed",
    "FSDP": "fsdp fsdp_config fsdp_transformer_layer_cls_to_wrap fsdp_min_num_params",
    "accelerate's own settings": "accelerator_config parallelism_config",
    "how worker processes are started": "dataloader_multiprocessing_context",
    "debugging aids of transformers": "debug",
    "own names of label columns": "label_names length_column_name",
}
"""Settings that take a value, by what they are for; empty (null) is what happens anyway."""

_HARMLESS: Mapping[str, tuple[object, ...]] = {
    "low_cpu_mem_usage": (True,),
    "remove_unused_columns": (False,),
    "use_kv_cache": (True,),
    "infer_backend": ("huggingface", "hf"),
    "average_tokens_across_devices": (True,),
    "eval_do_concat_batches": (True,),
    "logging_strategy": ("steps",),
    "logging_nan_inf_filter": (False,),
    "log_on_each_node": (True,),
    "dataloader_in_order": (True,),
    "skip_memory_metrics": (True,),
    "save_safetensors": (True,),
    "pissa_convert": (True, False),
    "oft_target": ("all",),
    "include_num_input_tokens_seen": (False, "no"),
    "debug": ("",),
    "fp16_opt_level": ("O1",),
    "local_rank": (-1,),
    "parallel_mode": (),
}
"""Values that say what happens anyway, for keys where that is not simply off or empty."""

_RENAMED: Mapping[str, str] = {
    "evaluation_strategy": "eval_strategy",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "no_cuda": "use_cpu",
    "checkpoint_dir": "adapter_name_or_path",
    "finetuning_args": "finetuning_type",
    "lora_modules": "lora_target",
    "lora_target_modules": "lora_target",
    "target_modules": "lora_target",
    "modules_to_save": "additional_target",
    "lora_r": "lora_rank",
    "num_layer_trainable": "freeze_trainable_layers",
    "name_module_trainable": "freeze_trainable_modules",
    "sft_packing": "packing",
    "sample_packing": "packing",
    "max_source_length": "cutoff_len",
    "max_target_length": "cutoff_len",
    "max_seq_length": "cutoff_len",
    "max_seq_len": "cutoff_len",
    "sequence_len": "cutoff_len",
    "dev_ratio": "val_size",
    "val_set_size": "val_size",
    "ignore_pad_token_for_labels": "ignore_pad_token_for_loss",
    "system_prompt": "default_system",
    "load_in_4bit": "quantization_bit",
    "load_in_8bit": "quantization_bit",
    "attn_implementation": "flash_attn",
    "dpo_beta": "pref_beta",
    "orpo_beta": "pref_beta",
    "model_name": "model_name_or_path",
    "model_path": "model_name_or_path",
    "base_model": "model_name_or_path",
    "model": "model_name_or_path",
    "tokenizer_name": "model_name_or_path",
    "dataset_name": "dataset",
    "datasets": "dataset",
    "micro_batch_size": "per_device_train_batch_size",
    "train_batch_size": "per_device_train_batch_size",
    "lr": "learning_rate",
    "lr_scheduler": "lr_scheduler_type",
    "num_epochs": "num_train_epochs",
    "epochs": "num_train_epochs",
    "optimizer": "optim",
    "use_auth_token": "hf_hub_token",
    "hf_token": "hf_hub_token",
    "token": "hf_hub_token",
    "tuning_type": "finetuning_type",
    "rank_pattern": "lora_rank_pattern",
    "alpha_pattern": "lora_alpha_pattern",
    "peft_config": "adapter_options",
    "torch_dtype": "bf16",
    "dtype": "bf16",
    "revision": "model_revision",
}
"""Older spellings, and those of neighbouring tools, with the key that has their job here."""

_LATER_VALUES: Mapping[str, str] = {
    "stage": "ppo grpo orpo",
    "fp8_backend": "te msamp",
    "quantization_method": "quanto",
    "optim": "adamw_torch_xla adamw_torch_npu_fused adamw_anyprecision",
}
"""Values of supported settings that are known and cannot be used yet."""

_STORED = "is read from the model itself: name one that is stored like that, and leave `quantization_bit` out"
_OTHER_WAYS: Mapping[str, Mapping[str, str]] = {
    "quantization_method": {
        **dict.fromkeys(("gptq", "awq", "aqlm", "mxfp4"), _STORED),
        "fp8": f"{_STORED}, or set `quantization_method: torchao` and `quantization_type: fp8`",
    },
    "optim": {
        "galore_adamw": "is `use_galore: true` here",
        "galore_adamw_8bit": "is `use_galore: true` with `optim: adamw_8bit` here",
        "galore_adafactor": "is `use_galore: true` with `optim: adafactor` here",
        "galore_adamw_layerwise": "is `use_galore: true` with `galore_layerwise: true` here",
        "galore_adamw_8bit_layerwise": "is `use_galore: true` with `optim: adamw_8bit`, `galore_layerwise: true` here",
        "galore_adafactor_layerwise": "is `use_galore: true` with `optim: adafactor`, `galore_layerwise: true` here",
        "apollo_adamw": "is `use_apollo: true` here",
        "apollo_adamw_layerwise": "is `use_apollo: true` with `apollo_layerwise: true` here",
    },
    "finetuning_type": {"bone": "is `miss` in peft now"},
}
"""Values of supported settings that are said in another way here."""

_CONSTANT_KEYS = frozenset(_HARMLESS) - {"include_num_input_tokens_seen", "debug", "oft_target"}


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key that means something elsewhere and nothing here yet."""

    key: str
    feature: str
    """What it is for; empty for keys that only have one useful value."""

    accepted: tuple[object, ...]
    """Values that ask for what happens anyway."""

    def accepts(self, value: object) -> bool:
        """Return whether a written value asks for what happens anyway."""
        if None in self.accepted and (value == "" or is_null(value, quoted=True)):
            return True
        text = str(value).lower()
        spellings = {True: ("true", "yes", "on", "1"), False: ("false", "no", "off", "0")}
        for accepted in self.accepted:
            if isinstance(accepted, bool) and text in spellings[accepted]:
                return True
            if text == str(accepted).lower():
                return True
        return False

    def render_refusal(self) -> str:
        """Return why another value is refused, and which one is not."""
        shown = " or ".join("null" if value is None else str(value).lower() for value in self.accepted if value != "")
        if self.feature:
            return f"known, but not supported yet ({self.feature}); remove it or leave it at {shown}"
        return f"known, but only {shown} is supported yet; remove it"


@cache
def known_keys() -> Mapping[str, KnownKey]:
    """Return every key that is known and not supported, by name."""
    table: dict[str, KnownKey] = {}
    for feature, names in _SWITCHES_BY_FEATURE.items():
        for name in names.split():
            table[name] = KnownKey(name, feature, (False, None, *_HARMLESS.get(name, ())))
    for feature, names in _VALUES_BY_FEATURE.items():
        for name in names.split():
            table[name] = KnownKey(name, feature, (None, *_HARMLESS.get(name, ())))
    for name in _CONSTANT_KEYS:
        table[name] = KnownKey(name, "", (*_HARMLESS[name], None))
    return table


def find_new_name(key: str) -> str | None:
    """Return the key that has the job of an older spelling here, or `None`."""
    return _RENAMED.get(key)


def describe_known_value(key: str, value: object) -> str:
    """Return a clause about a value that is known elsewhere, empty for one that is not."""
    other_way = _OTHER_WAYS.get(key, {}).get(str(value).lower())
    if other_way is not None:
        return f", which {other_way}"
    is_later = str(value).lower() in _LATER_VALUES.get(key, "").split()
    return ", which is known, but not supported yet" if is_later else ""


def renamed_keys() -> Set[str]:
    """Return the older spellings that are recognised."""
    return _RENAMED.keys()
