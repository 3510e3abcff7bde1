"""The order of everything in this package: from settings to a model that is ready to train or to run."""

import logging
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from tunesmith.config import RunConfig
from tunesmith.config.peft_methods import PEFT_METHODS
from tunesmith.models.adapters import apply_adapters
from tunesmith.models.adapters.stored import read_settings
from tunesmith.models.attention import AttentionChoice, resolve_attention
from tunesmith.models.base_weights import load_weights, read_config
from tunesmith.models.checkpointing import enable_gradient_checkpointing, resolve_gradient_checkpointing
from tunesmith.models.devices import resolve_device
from tunesmith.models.grown_vocabulary import grow_vocabulary
from tunesmith.models.heads import find_base_model
from tunesmith.models.isolation import check_isolation
from tunesmith.models.kernels import check_flash_attention, use_liger_kernels
from tunesmith.models.lean import use_lean_layers
from tunesmith.models.locations import AdaptedLocation, resolve_with_adapters
from tunesmith.models.memory import TrainingMemory
from tunesmith.models.precision import Precision, resolve_inference_dtype, resolve_precision, upcast_norms
from tunesmith.models.quantization import Quantization, resolve_quantization
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
    settled = _settle(config, is_trainable=is_trainable, needs_exact=needs_exact)
    base, notes = _load_base(config, tokenizer, settled, is_trainable=is_trainable)
    grown = grow_vocabulary(config, base, tokenizer, settled.found, is_trainable=is_trainable)
    adapted = apply_adapters(
        base,
        grown.adapter,
        () if needs_exact else settled.found.adapters,
        trained_dtype=settled.precision.trained_dtype,
        is_trainable=is_trainable,
        is_compressed=settled.is_compressed,
    )
    _cast_frozen(adapted.model, settled.precision.frozen_dtype, is_compressed=settled.is_compressed)
    model = _place(adapted.model, settled.device, is_compressed=settled.is_compressed)
    base.config.use_cache = not is_trainable
    loaded = LoadedModel(
        model=model,
        attention=settled.attention,
        precision=settled.precision,
        parameters=summarize_parameters(model),
        gradient_checkpointing=False,
        notes=(*notes, *([grown.note] if grown.note else []), *adapted.notes),
        stored_dtype=settled.stored_dtype,
        memory=None,
        quantization=settled.quantization,
        changes_positions=bool(settled.notes),
    )
    _log_parameters(config, loaded, is_trainable=is_trainable)
    if is_trainable:
        return _prepare_training(config, loaded, layout, most_tokens)
    base.config.dtype = settled.stored_dtype
    return loaded


@dataclass(frozen=True, slots=True)
class _Settled:
    """What is decided before any weight is read."""

    found: AdaptedLocation
    device: torch.device
    model_config: PreTrainedConfig
    stored_dtype: torch.dtype | None
    precision: Precision
    attention: AttentionChoice
    quantization: Quantization | None
    notes: tuple[str, ...]
    """About positions that are stretched; none where they are as stored."""

    @property
    def is_compressed(self) -> bool:
        """Whether the weights of the base stay compressed."""
        return self.quantization is not None and self.quantization.is_compressed


def _settle(config: RunConfig, *, is_trainable: bool, needs_exact: bool) -> _Settled:
    """Decide how the base model is loaded."""
    found = resolve_with_adapters(config.model, config.adapter.adapter_name_or_path)
    device = resolve_device(use_cpu=config.training.use_cpu)
    model_config = read_config(config.model, found.base)
    stored_dtype = model_config.dtype if isinstance(model_config.dtype, torch.dtype) else None
    notes = _stretch_positions(config, model_config, found, is_trainable=is_trainable)
    precision = resolve_precision(config, device) if is_trainable else _precision_to_run(config, stored_dtype, device)
    attention = resolve_attention(
        config.model.flash_attn, device, model_config, precision, shares_prompts=config.may_share_prompts
    )
    quantization = resolve_quantization(
        config, model_config, found.base, device, precision, is_trainable=is_trainable, needs_exact=needs_exact
    )
    return _Settled(found, device, model_config, stored_dtype, precision, attention, quantization, tuple(notes))


def _load_base(
    config: RunConfig, tokenizer: PreTrainedTokenizerBase, settled: _Settled, *, is_trainable: bool
) -> tuple[PreTrainedModel, list[str]]:
    """Return the model before its adapters, for stage rm with a head for scores, and what to say of it in the plan."""
    dtype = _load_dtype(config, settled.precision, settled.found.adapters, is_trainable=is_trainable)
    notes = list(settled.notes)

    def load(kind: Any) -> PreTrainedModel:
        return load_weights(
            config, settled.found.base, settled.model_config, settled.attention, dtype, settled.quantization, kind
        )

    if config.objective.stage == "rm":
        reward = load_reward_base(
            config, settled.found, settled.model_config, tokenizer, load, is_trainable=is_trainable
        )
        base = reward.model
        notes.append(reward.note)
    else:
        check_writes_text(settled.found, config.objective.stage)
        base = load(AutoModelForCausalLM)
    return base, [*notes, *_note_quantization(base, settled.quantization, is_trainable)]


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


def _log_parameters(config: RunConfig, loaded: LoadedModel, *, is_trainable: bool) -> None:
    if is_trainable:
        logger.info(loaded.parameters.render_line())
    if config.model.print_param_status:
        for line in list_parameter_status(loaded.model):
            logger.info(line)


def _place(model: PreTrainedModel | PeftModel, device: torch.device, *, is_compressed: bool) -> Any:
    """Bring a model to its device; compressed weights are there, and adapters come to where these are."""
    if not is_compressed:
        return model.to(device)
    for parameter in model.parameters():
        if parameter.device != device and parameter.device.type != "meta":
            parameter.data = parameter.data.to(device)
    return model


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
    return layout == "flat" or (config.packs and config.objective.stage != "pt")
