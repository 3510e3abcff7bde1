"""What a model is, without its weights: its configuration, and its modules with nothing in them.

The modules are made on the `meta` device, where a tensor has a shape and no memory, so a model of any size is looked at
in a moment.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from tunesmith.config import RunConfig
from tunesmith.errors import ModelError
from tunesmith.models.adapters.modules import find_layers, list_expert_parameters, list_linears, list_routers
from tunesmith.models.adapters.record import BaseRecord
from tunesmith.models.adapters.stored import read_settings
from tunesmith.models.attention import resolve_attention
from tunesmith.models.base_weights import load_base_config
from tunesmith.models.devices import resolve_device
from tunesmith.models.families import resolve_logit_transform
from tunesmith.models.locations import AdaptedLocation, resolve_with_adapters
from tunesmith.models.quantization.stored import find_stored_quantization
from tunesmith.models.summary import ParameterSummary, summarize_parameters

Facts = Iterator[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Inspection:
    """Facts about a model, in the order in which they are shown."""

    facts: tuple[tuple[str, str], ...]
    """Names and values in words."""

    parameters: ParameterSummary
    rows: int
    """Rows of the embedding, one per token."""

    max_positions: int | None
    """Tokens that the model was made for, where its configuration says."""

    def render(self) -> str:
        """Return one line per fact, and the table of weights."""
        width = max(len(name) for name, _ in self.facts)
        lines = [f"{name + ':':<{width + 1}} {value}" for name, value in self.facts]
        table = [f"  {line}" for line in self.parameters.render().splitlines()]
        return "\n".join([*lines, "weights:", *table])


def inspect_model(config: RunConfig) -> Inspection:
    """Look at the model of a configuration; no weights are loaded.

    Raises:
        ModelError: There is no model, or the installed transformers does not know its kind.
    """
    found = resolve_with_adapters(config.model, config.adapter.adapter_name_or_path)
    model_config = load_base_config(config)
    model = _build_empty(model_config, config)
    text = model_config.get_text_config()
    facts = [
        *_describe_place(found, model_config, model),
        *_describe_shape(model, text),
        *_describe_attention(config, model_config),
        *_describe_modules(model),
        *_describe_head(model, text),
        *_describe_limits(text),
        *(fact for adapter in found.adapters for fact in _describe_adapter(adapter)),
    ]
    rows = int(model.get_input_embeddings().weight.shape[0])
    return Inspection(tuple(facts), summarize_parameters(model), rows, _find_number(text, "max_position_embeddings"))


def _build_empty(model_config: PreTrainedConfig, config: RunConfig) -> PreTrainedModel:
    try:
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                model_config, trust_remote_code=config.model.trust_remote_code
            )
    except (ValueError, ImportError) as error:
        raise ModelError(
            f"model_name_or_path: {config.model.model_name_or_path} is of kind {model_config.model_type}, which is no "
            f"causal language model for the installed transformers: {str(error).splitlines()[0]}"
        ) from error
    return model.requires_grad_(False)


def _describe_place(found: AdaptedLocation, model_config: PreTrainedConfig, model: PreTrainedModel) -> Facts:
    kinds = {"folder": "a folder", "gguf": "a GGUF file", "hub": "a hub id", "adapter": "an adapter"}
    yield "model", f"{found.base.name} ({kinds[found.base.kind]})"
    yield "family", f"{model_config.model_type}, {type(model).__name__}"
    size = sum(value.numel() for value in model.parameters())
    stored = find_stored_quantization(model_config)
    how = f", stored as {stored.title}" if stored is not None else ""
    yield "size", f"{size:,} weights, {2 * size / 1e9:,.2f} GB in 16 bits{how}"
    dtype = model_config.dtype
    if isinstance(dtype, torch.dtype):
        yield "saved in", str(dtype).removeprefix("torch.")


def _describe_shape(model: PreTrainedModel, text: PreTrainedConfig) -> Facts:
    name, layers = find_layers(model)
    yield "layers", f"{len(layers)} ({name}), {text.hidden_size} wide"
    experts = _find_number(text, "num_experts", "num_local_experts", "n_routed_experts")
    if experts:
        active = _find_number(text, "num_experts_per_tok", "top_k")
        yield "experts", f"{experts} in a layer" + (f", {active} for each token" if active else "")


def _describe_attention(config: RunConfig, model_config: PreTrainedConfig) -> Facts:
    text = model_config.get_text_config()
    heads = _find_number(text, "num_attention_heads")
    if heads:
        keys = _find_number(text, "num_key_value_heads") or heads
        width = _find_number(text, "head_dim") or text.hidden_size // heads
        shared = "" if keys == heads else f", {keys} for keys and values"
        yield "attention heads", f"{heads} of width {width}{shared}"
    kinds = vars(text).get("layer_types")
    window = _find_number(text, "sliding_window")
    if isinstance(kinds, list) and kinds:
        counted = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in Counter(kinds).items())
        yield "attention kinds", counted + (f" (window {window:,})" if window else "")
    else:
        yield "attention kinds", f"sliding window of {window:,} in all layers" if window else "full in all layers"
    choice = resolve_attention(config.model.flash_attn, resolve_device(use_cpu=config.training.use_cpu), model_config)
    flat = "batches without padding" if choice.supports_flat else "padded batches"
    yield "attention here", f"{choice.implementation}, {flat} ({choice.reason})"


def _describe_modules(model: PreTrainedModel) -> Facts:
    linears = [linear for linear in list_linears(model) if linear.is_in_layers]
    family = model.config.get_text_config().model_type
    for group, wanted in (("attn", True), ("mlp", False)):
        names = dict.fromkeys(linear.leaf for linear in linears if linear.is_attention is wanted)
        if names:
            yield f"lora_target {family}_{group}", ", ".join(names)
    experts = list_expert_parameters(model)
    if experts:
        yield "lora_target experts", ", ".join(dict.fromkeys(".".join(name.split(".")[-2:]) for name in experts))
    routers = [*list_routers(model)[0], *list_routers(model)[1]]
    if routers:
        yield "lora_target routers", ", ".join(dict.fromkeys(name.rpartition("mlp.")[2] for name in routers))


def _describe_head(model: PreTrainedModel, text: PreTrainedConfig) -> Facts:
    rows = model.get_input_embeddings().weight.shape[0]
    yield "vocabulary", f"{rows:,} rows, embedding and head {'tied' if text.tie_word_embeddings else 'apart'}"
    transform = resolve_logit_transform(text)
    parts = [f"times {transform.multiplier:g}"] if transform.multiplier != 1.0 else []
    parts += [f"capped at {transform.softcap:g}"] if transform.softcap is not None else []
    if parts:
        yield "logits", ", ".join(parts)


def _describe_limits(text: PreTrainedConfig) -> Facts:
    positions = _find_number(text, "max_position_embeddings")
    yield "positions", f"{positions:,}" if positions else "no limit in the configuration"
    rope = vars(text).get("rope_parameters") or vars(text).get("rope_scaling")
    if isinstance(rope, dict) and rope:
        yield "rope", ", ".join(f"{key} {value}" for key, value in rope.items() if not isinstance(value, list))


def _describe_adapter(folder: str) -> Facts:
    settings = read_settings(folder)
    shape = [str(settings.peft_type.value).lower()]
    fields: dict[str, Any] = settings.to_dict()
    for key, title in (("r", "rank"), ("lora_alpha", "alpha")):
        if fields.get(key):
            shape.append(f"{title} {fields[key]}")
    targets = fields.get("target_modules")
    if targets:
        shape.append(f"on {', '.join(_leaves(targets))}")
    for key in ("target_parameters", "modules_to_save"):
        if fields.get(key):
            shape.append(f"{key} {', '.join(_leaves(fields[key]))}")
    yield "adapter", f"{folder}: {', '.join(shape)}"
    record = BaseRecord.load(folder)
    if record is not None:
        merged = f", after merging {', '.join(record.merged)}" if record.merged else ""
        yield "trained beside", f"{record.name} ({record.num_rows:,} rows){merged}"


def _leaves(names: Sequence[str] | str) -> list[str]:
    if isinstance(names, str):
        return [names]
    return sorted({name.rpartition(".")[2] for name in names})


def _find_number(config: PreTrainedConfig, *names: str) -> int | None:
    settings = config.to_dict()
    found = (settings.get(name) for name in names)
    return next((value for value in found if isinstance(value, int) and not isinstance(value, bool)), None)
