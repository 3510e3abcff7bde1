"""The base model as it lies in its place: its configuration and its weights."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from tunesmith.config import RunConfig
from tunesmith.config.model import ModelConfig
from tunesmith.errors import ModelError
from tunesmith.models.attention import AttentionChoice
from tunesmith.models.completeness import check_complete, explain_damaged_files
from tunesmith.models.gguf.metadata import read_metadata
from tunesmith.models.gguf.weights import load_config as load_gguf_config
from tunesmith.models.gguf.weights import load_weights as load_gguf_weights
from tunesmith.models.locations import ModelLocation, hub_error, resolve_with_adapters
from tunesmith.models.quantization import Quantization, dequantize_checked


def load_base_config(config: RunConfig) -> PreTrainedConfig:
    """Load the transformers configuration of a run's base model, without its weights.

    For decisions that depend on the family and come before loading: `resolve_attention` takes it to find out whether
    samples of this model may share a row.

    Raises:
        ModelError: There is no model, or its configuration cannot be read.
    """
    return read_config(config.model, resolve_with_adapters(config.model, ()).base)


def read_config(config: ModelConfig, location: ModelLocation) -> PreTrainedConfig:
    """Return the transformers configuration of what is in a place.

    Raises:
        ModelError: There is none, or it cannot be read.
    """
    if location.kind == "gguf":
        assert location.path is not None, "a GGUF file is on this disk"
        return load_gguf_config(read_metadata(location.path))
    try:
        model_config: PreTrainedConfig = AutoConfig.from_pretrained(location.source, **_hub_options(config))
    except (OSError, ValueError, KeyError) as error:
        raise _loading_error(location, config, error) from error
    return model_config


def load_weights(
    config: RunConfig,
    location: ModelLocation,
    model_config: PreTrainedConfig,
    attention: AttentionChoice,
    dtype: torch.dtype,
    quantization: Quantization | None,
    kind: Any,
) -> PreTrainedModel:
    """Load the weights of a base model, or draw new ones for `train_from_scratch`.

    Args:
        config: Of the run.
        location: Where they are.
        model_config: Read from there, with what the run changes about it.
        attention: How the model will attend.
        dtype: Type to load them in.
        quantization: How they are, or are to be, compressed.
        kind: Automatic class of transformers for what the model does.

    Raises:
        ModelError: They cannot be loaded, or some are missing.
    """
    options: dict[str, Any] = {"dtype": dtype, "attn_implementation": attention.implementation}
    try:
        if config.model.train_from_scratch:
            remote = config.model.trust_remote_code
            model = kind.from_config(model_config, trust_remote_code=remote, **options)
        elif location.kind == "gguf":
            assert location.path is not None, "a GGUF file is on this disk"
            model = load_gguf_weights(read_metadata(location.path), config=model_config, **options)
        else:
            options |= {"config": model_config, "output_loading_info": True, **_hub_options(config.model)}
            options |= {} if quantization is None else quantization.loading
            with explain_damaged_files(location.name, location.path, "model_name_or_path"), _said_by_us():
                model, info = kind.from_pretrained(location.source, **options)
            check_complete(location.name, info)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        raise _loading_error(location, config.model, error) from error
    # Adapters remember their base by this name, from wherever they are loaded later.
    name = str(location.path.resolve()) if isinstance(location.path, Path) else location.name
    model.name_or_path = model.config._name_or_path = name
    loaded: PreTrainedModel = model
    return loaded if quantization is None else _finish_compression(loaded, quantization, dtype)


@contextmanager
def _said_by_us() -> Iterator[None]:
    """Keep quiet about stored weights whose reading we ask for; the plan says it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="You passed `quantization_config`", category=UserWarning)
        yield


def _finish_compression(model: PreTrainedModel, quantization: Quantization, dtype: torch.dtype) -> PreTrainedModel:
    if quantization.after_loading is not None:
        quantization.after_loading(model)
    return dequantize_checked(model, dtype) if quantization.needs_dequantizing else model


def _hub_options(config: ModelConfig) -> dict[str, Any]:
    return {
        "trust_remote_code": config.trust_remote_code,
        "revision": config.model_revision,
        "cache_dir": config.cache_dir,
        "token": config.hf_hub_token,
    }


def _loading_error(location: ModelLocation, config: ModelConfig, error: Exception) -> ModelError:
    if location.kind == "hub" and isinstance(error, OSError):
        return hub_error(location.name, config, error)
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ModelError(
        f"model_name_or_path: {location.name} cannot be loaded as a causal language model: {first}. "
        "Check that the folder is whole and that the installed transformers knows this kind of model."
    )
