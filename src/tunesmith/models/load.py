"""The order of everything in this package: from settings to a model that is ready to train or to run."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from peft import PeftModel
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from tunesmith.config import RunConfig
from tunesmith.config.model import ModelConfig
from tunesmith.config.peft_methods import PEFT_METHODS
from tunesmith.errors import ModelError
from tunesmith.models.adapters import apply_adapters
from tunesmith.models.adapters.stored import read_settings
from tunesmith.models.attention import AttentionChoice, resolve_attention
from tunesmith.models.checkpointing import enable_gradient_checkpointing, resolve_gradient_checkpointing
from tunesmith.models.completeness import check_complete, explain_damaged_files
from tunesmith.models.devices import resolve_device
from tunesmith.models.gguf.metadata import read_metadata
from tunesmith.models.gguf.weights import load_config as load_gguf_config
from tunesmith.models.gguf.weights import load_weights as load_gguf_weights
from tunesmith.models.grown_vocabulary import grow_vocabulary
from tunesmith.models.heads import find_base_model
from tunesmith.models.isolation import check_isolation
from tunesmith.models.kernels import check_flash_attention, use_liger_kernels
from tunesmith.models.lean import use_lean_layers
from tunesmith.models.locations import AdaptedLocation, ModelLocation, hub_error, resolve_with_adapters
from tunesmith.models.memory import TrainingMemory
from tunesmith.models.precision import Precision, resolve_inference_dtype, resolve_precision, upcast_norms
from tunesmith.models.quantization import Quantization, dequantize_checked, resolve_quantization
from tunesmith.models.quantization.fp8 import use_float8_products
from tunesmith.models.quantization.resolve import check_has_gradient
from tunesmith.models.reward.build import exact_parameters
from tunesmith.models.reward.load import check_writes_text, load_reward_base
from tunesmith.models.rope import apply_rope_scaling, check_same_positions, restore_rope_scaling
from tunesmith.models.summary import ParameterSummary, list_parameter_status, summarize_parameters
from tunesmith.models.vocabulary import read_new_tokens

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to train or to run, and what was decided about it."""

    model: PreTrainedModel | PeftModel
    attention: AttentionChoice
    precision: Precision
    parameters: ParameterSummary
    gradient_checkpointing: bool
    notes: tuple[str, ...]
    """For the plan, one sentence each."""

    stored_dtype: torch.dtype | None
    """Type that the base weights were saved in, if their configuration says."""

    memory: TrainingMemory | None
    """Estimate for a step; `None` for a model that is only run."""

    quantization: Quantization | None = None
    """How the base weights are compressed; `None` where they are exact."""

    changes_positions: bool = False
    """Whether the base model has other rotary positions than it is stored with."""


def load_model(
    config: RunConfig,
    tokenizer: PreTrainedTokenizerBase,
    *,
    layout: Literal["flat", "padded"] = "padded",
    most_tokens: int | None = None,
    is_trainable: bool = True,
    needs_exact: bool = False,
) -> LoadedModel:
    """Load the model of a run onto this process's device.

    Args:
        config: Of the run.
        tokenizer: Its vocabulary must fit the model's embeddings.
        layout: How batches will be laid out; a layout that this model cannot keep apart is refused.
        most_tokens: Tokens of the largest micro-batch, where they are known, to estimate the memory of a step.
        is_trainable: False for a model that is only run: adapters are merged, nothing is trainable, dropout is off.
        needs_exact: Whether the base model is wanted alone, to merge adapters into it: weights that are stored
            compressed are made exact, `quantization_bit` is set aside, there is room for the adapters' vocabulary, and
            the adapters are left to the caller.

    Raises:
        ModelError: The model or an adapter cannot be loaded, does not fit, or cannot do what is asked.
    """
    found = resolve_with_adapters(config.model, config.adapter.adapter_name_or_path)
    location = found.base
    device = resolve_device(use_cpu=config.training.use_cpu)
    model_config = _load_config(config.model, location)
    stored_dtype = model_config.dtype if isinstance(model_config.dtype, torch.dtype) else None
    notes: list[str] = []
    stretched = _stretch_positions(config, model_config, found, is_trainable=is_trainable)
    notes += stretched
    precision = resolve_precision(config, device) if is_trainable else _precision_to_run(config, stored_dtype, device)
    attention = resolve_attention(
        config.model.flash_attn, device, model_config, precision, shares_prompts=config.may_share_prompts
    )
    quantization = resolve_quantization(
        config, model_config, location, device, precision, is_trainable=is_trainable, needs_exact=needs_exact
    )
    is_compressed = quantization is not None and quantization.is_compressed
    dtype = _load_dtype(config, precision, found.adapters, is_trainable=is_trainable)

    def load(kind: Any) -> PreTrainedModel:
        return _load_weights(config, location, model_config, attention, dtype, quantization, kind)

    if config.objective.stage == "rm":
        reward = load_reward_base(config, found, model_config, tokenizer, load, is_trainable=is_trainable)
        base, notes = reward.model, [*notes, reward.note]
    else:
        check_writes_text(found, config.objective.stage)
        base = load(AutoModelForCausalLM)
    notes += _note_quantization(base, quantization, is_trainable)
    grown = grow_vocabulary(config, base, tokenizer, found, is_trainable=is_trainable)
    notes += [grown.note] if grown.note else []
    adapted = apply_adapters(
        base,
        grown.adapter,
        () if needs_exact else found.adapters,
        trained_dtype=precision.trained_dtype,
        is_trainable=is_trainable,
        is_compressed=is_compressed,
    )
    notes.extend(adapted.notes)
    _cast_frozen(adapted.model, precision.frozen_dtype, is_compressed=is_compressed)
    model = _place(adapted.model, device, is_compressed=is_compressed)
    base.config.use_cache = not is_trainable
    parameters = summarize_parameters(model)
    _log_parameters(config, model, parameters, is_trainable=is_trainable)
    loaded = LoadedModel(
        model,
        attention,
        precision,
        parameters,
        False,
        tuple(notes),
        stored_dtype,
        None,
        quantization,
        changes_positions=bool(stretched),
    )
    if not is_trainable:
        base.config.dtype = stored_dtype
        return loaded
    return _prepare_training(config, loaded, layout, most_tokens)


def _prepare_training(
    config: RunConfig, loaded: LoadedModel, layout: Literal["flat", "padded"], most_tokens: int | None
) -> LoadedModel:
    """Do what only a model that is trained needs: kernels, proofs of them, gradient checkpointing."""
    model, precision, notes = loaded.model, loaded.precision, list(loaded.notes)
    if config.model.upcast_layernorm:
        notes.append(f"upcast_layernorm: {upcast_norms(model)} norms brought to float32")
    if config.model.enable_liger_kernel:
        notes.append(use_liger_kernels(find_base_model(model), precision))
    elif config.model.lean_layers and (line := use_lean_layers(model).render_line()):
        notes.append(line)
    if config.training.fp8:
        notes.append(use_float8_products(model, find_base_model(model).device))
    if "flash_attention" in loaded.attention.implementation:
        check_flash_attention(find_base_model(model), loaded.attention.implementation, precision)
    if _needs_isolation(config, layout):
        check_isolation(model, layout, precision)
    checkpointing = resolve_gradient_checkpointing(model, config, precision, most_tokens)
    if checkpointing.enabled:
        enable_gradient_checkpointing(
            model,
            use_reentrant=config.model.use_reentrant_gc,
            every=config.model.checkpoint_every,
            kept="products" if config.model.gradient_checkpointing == "selective" else "nothing",
        )
    notes.append(f"gradient checkpointing {'on' if checkpointing.enabled else 'off'}: {checkpointing.reason}")
    return replace(
        loaded,
        gradient_checkpointing=checkpointing.enabled,
        memory=checkpointing.memory,
        notes=tuple(notes),
    )


def _stretch_positions(
    config: RunConfig, model_config: PreTrainedConfig, found: AdaptedLocation, *, is_trainable: bool
) -> list[str]:
    asked, stored = config.model.rope_scaling, deepcopy(model_config)
    restored = restore_rope_scaling(model_config, found.adapters)
    if restored is None:
        return [] if asked is None else [apply_rope_scaling(model_config, asked, config.data.cutoff_len)]
    if asked is not None and is_trainable:
        apply_rope_scaling(stored, asked, config.data.cutoff_len)
        check_same_positions(model_config, stored, found.adapters[-1])
    elif asked is not None:
        logger.info("rope_scaling is not used: %s.", restored)
    return [restored]


def _note_quantization(base: PreTrainedModel, quantization: Quantization | None, is_trainable: bool) -> list[str]:
    if quantization is None:
        return []
    if is_trainable:
        check_has_gradient(base, quantization)
    return [quantization.note]


def _log_parameters(
    config: RunConfig, model: torch.nn.Module, parameters: ParameterSummary, *, is_trainable: bool
) -> None:
    if is_trainable:
        logger.info(parameters.render_line())
    if config.model.print_param_status:
        for line in list_parameter_status(model):
            logger.info(line)


def load_base_config(config: RunConfig) -> PreTrainedConfig:
    """Load the transformers configuration of a run's base model, without its weights.

    For decisions that depend on the family and come before loading: `resolve_attention` takes it to find out whether
    samples of this model may share a row.

    Raises:
        ModelError: There is no model, or its configuration cannot be read.
    """
    return _load_config(config.model, resolve_with_adapters(config.model, ()).base)


def _load_config(config: ModelConfig, location: ModelLocation) -> PreTrainedConfig:
    if location.kind == "gguf":
        assert location.path is not None, "a GGUF file is on this disk"
        return load_gguf_config(read_metadata(location.path))
    try:
        model_config: PreTrainedConfig = AutoConfig.from_pretrained(location.source, **_hub_options(config))
    except (OSError, ValueError, KeyError) as error:
        raise _loading_error(location, config, error) from error
    return model_config


def _load_weights(
    config: RunConfig,
    location: ModelLocation,
    model_config: PreTrainedConfig,
    attention: AttentionChoice,
    dtype: torch.dtype,
    quantization: Quantization | None,
    kind: Any,
) -> PreTrainedModel:
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


def _place(model: PreTrainedModel | PeftModel, device: torch.device, *, is_compressed: bool) -> Any:
    """Bring a model to its device; compressed weights are there, and adapters come to where these are."""
    if not is_compressed:
        return model.to(device)
    for parameter in model.parameters():
        if parameter.device != device and parameter.device.type != "meta":
            parameter.data = parameter.data.to(device)
    return model


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


def _load_dtype(config: RunConfig, precision: Precision, adapters: Sequence[str], *, is_trainable: bool) -> torch.dtype:
    """Return the type to load weights in: weights that become trained must not pass through a smaller one."""
    if not is_trainable:
        return precision.frozen_dtype
    adapter = config.adapter
    # Some methods keep the trained weights of norms and tokens as copies of the base's, and so may an adapter that
    # exists: its copies are read into those.
    method = PEFT_METHODS.get(adapter.finetuning_type)
    trains_rows = bool(read_new_tokens(config.model).all) or config.model.resize_vocab
    trains_copies = method is None or method.place in {"norms", "embeddings"} or bool(adapter.additional_target)
    brings_copies = any(_brings_copies(folder) for folder in adapters)
    return precision.trained_dtype if trains_rows or trains_copies or brings_copies else precision.frozen_dtype


def _brings_copies(folder: str) -> bool:
    """Whether a saved adapter holds modules that are trained whole."""
    return bool(read_settings(folder).to_dict().get("modules_to_save"))


def _cast_frozen(model: torch.nn.Module, dtype: torch.dtype, *, is_compressed: bool) -> None:
    exact = exact_parameters(model)
    for parameter in model.parameters():
        # Compressed weights may be stored as floats of which each holds the bits of several.
        if id(parameter) in exact or (is_compressed and type(parameter) is not torch.nn.Parameter):
            continue
        if not parameter.requires_grad and parameter.dtype in {torch.float32, torch.float16, torch.bfloat16}:
            parameter.data = parameter.data.to(dtype)


def _precision_to_run(config: RunConfig, stored: torch.dtype | None, device: torch.device) -> Precision:
    dtype = resolve_inference_dtype(config.model.infer_dtype, stored, device)
    return Precision(dtype, dtype, None, f"infer_dtype: {config.model.infer_dtype}")


def _needs_isolation(config: RunConfig, layout: Sequence[str] | str) -> bool:
    packs_samples = config.objective.stage != "pt" and bool(config.data.packing or config.data.neat_packing)
    return layout == "flat" or packs_samples
