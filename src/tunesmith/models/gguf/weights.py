"""Weights of a GGUF file as an ordinary model that can be trained and saved."""

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    GgufConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from tunesmith.models.completeness import check_complete
from tunesmith.models.gguf.metadata import GgufMetadata, forget_reader
from tunesmith.models.gguf.tokenizer import end_token_ids
from tunesmith.models.patches.gguf_lookups import remembered_lookups


def load_config(metadata: GgufMetadata) -> PreTrainedConfig:
    """Return the transformers configuration of a GGUF file, with the file's own special ids."""
    with remembered_lookups(metadata.path):
        config = AutoConfig.from_pretrained(str(metadata.path.parent), gguf_file=metadata.path.name)
    ends = end_token_ids(metadata)
    config.eos_token_id = ends[0] if len(ends) == 1 else ends or None
    config.bos_token_id = _find_id(metadata, "bos")
    config.pad_token_id = _find_id(metadata, "padding")
    return config


def load_weights(
    metadata: GgufMetadata, *, config: PreTrainedConfig, dtype: torch.dtype, attn_implementation: str
) -> PreTrainedModel:
    """Load and dequantise the weights of a GGUF file.

    Args:
        metadata: Of the file.
        config: What `load_config` gave.
        dtype: Number type of the weights in memory.
        attn_implementation: Name for transformers.

    Raises:
        ModelError: The file does not hold every weight.
    """
    with remembered_lookups(metadata.path):
        loaded = AutoModelForCausalLM.from_pretrained(
            str(metadata.path.parent),
            gguf_file=metadata.path.name,
            config=config,
            dtype=dtype,
            attn_implementation=attn_implementation,
            quantization_config=GgufConfig(dequantize=True),
            output_loading_info=True,
        )
    forget_reader()
    model: PreTrainedModel = loaded[0]
    check_complete(str(metadata.path), loaded[1])
    # The weights are plain numbers now; these marks would only make save_pretrained refuse.
    model.hf_quantizer = None
    if "quantization_config" in model.config.__dict__:
        del model.config.quantization_config
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id
        if config.pad_token_id is not None
        else next(iter(end_token_ids(metadata)), None),
    )
    return model


def _find_id(metadata: GgufMetadata, name: str) -> int | None:
    value = metadata.find(f"tokenizer.ggml.{name}_token_id")
    return None if value is None else int(value)
