"""What must stay the same for a run to be the same run when it is resumed.

A checkpoint keeps the settings that decide which numbers are learnt. Going on with others would either be ignored (the
restored optimizer knows the old learning rate), end in a crash of a library (other shapes), or silently mix two runs.
How long the run is, what it logs, saves and evaluates, and on how many workers, may change.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import PurePath
from typing import Any

from tunesmith.config import RunConfig
from tunesmith.config.lean_optimizers import LeanOptimizerSettings
from tunesmith.config.preference import PreferenceConfig
from tunesmith.config.quantization import QuantizationConfig
from tunesmith.errors import CheckpointError

_DECISIVE = (
    *("model_name_or_path", "model_revision", "rope_scaling", "split_special_tokens", "train_from_scratch"),
    *("finetuning_type", "adapter_name_or_path", "create_new_adapter", "lora_rank", "lora_alpha", "lora_dropout"),
    *("lora_rank_pattern", "lora_alpha_pattern", "init_lora_weights", "pissa_iter", "adapter_options"),
    *("adapter_folder", "oft_rank", "oft_block_size", "module_dropout", "use_llama_pro", "llama_pro_new_blocks"),
    *("lora_target", "additional_target", "use_rslora", "use_dora", "loraplus_lr_ratio", "loraplus_lr_embedding"),
    *("freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules"),
    *("stage", "dataset", "template", "default_system", "row_variables", "cutoff_len", "max_samples", "val_size"),
    *("packing", "train_on_prompt", "mask_history", "ignore_pad_token_for_loss", "mix_strategy", "interleave_probs"),
    *("enable_thinking", "preserve_thinking", "tool_format", "allow_special_tokens"),
    *(field.name for field in fields(PreferenceConfig)),
    *("ref_model", "ref_model_adapters", "ref_model_quantization_bit"),
    *("label_smoothing_factor", "z_loss", "neftune_noise_alpha", "bf16", "fp16", "pure_bf16"),
    *("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio"),
    *("optim", "optim_args", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
    *("add_tokens", "add_special_tokens", "new_special_tokens_config", "init_special_tokens", "resize_vocab"),
    *(field.name for field in fields(QuantizationConfig)),
    *(field.name for field in fields(LeanOptimizerSettings) if field.name != "badam_verbose"),
    *("fp8", "upcast_layernorm"),
)

# A folder that moved is still the same model or the same rows: only its last part is compared.
_PLACES = frozenset({"model_name_or_path", "adapter_name_or_path", "dataset", "ref_model", "ref_model_adapters"})


def decisive_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that a resumed run has to share, as they come back from JSON."""
    values = {key: config.value(key) for key in _DECISIVE}
    kept: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return kept


def check_same_run(config: RunConfig, recorded: Mapping[str, Any], checkpoint: object) -> None:
    """Refuse to resume with settings that would make it another run.

    Args:
        config: Of the run that wants to go on.
        recorded: `decisive_settings` of the run that wrote the checkpoint.
        checkpoint: Its place, for the message.

    Raises:
        CheckpointError: Settings differ; all of them are listed.
    """
    differences = [
        f"  {key} was {recorded.get(key)!r} and is {value!r}"
        for key, value in decisive_settings(config).items()
        if (key in recorded or config.is_changed(key))  # written before there was such a setting
        and _comparable(key, recorded.get(key)) != _comparable(key, value)
    ]
    if differences:
        raise CheckpointError(
            f"{checkpoint} was written by a run with other settings, so this would not be the same run:\n"
            + "\n".join(differences)
            + "\nSet them as they were to go on. To start a new run from its weights, name the folder in "
            "adapter_name_or_path (an adapter) or model_name_or_path (a full model) and leave resume_from_checkpoint "
            "out."
        )


def _comparable(key: str, value: Any) -> Any:
    if key not in _PLACES:
        return value
    if isinstance(value, list):
        return [_comparable(key, item) for item in value]
    return PurePath(value).name if isinstance(value, str) else value
