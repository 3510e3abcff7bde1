"""Adapters merged into the weights, and the result written, reloaded and checked.

The merge is computed in float32 and rounded once, at the end: adding a small update to weights that are already
rounded to bfloat16 loses most of it. Two checks stand between a broken merge and its user: the merged model must give
the logits that the model with adapters gives, and the folder that was written must give those of the model in memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from tunesmith.config import RunConfig
from tunesmith.data.chat import ChatTemplate, resolve_template
from tunesmith.errors import ConfigError, ModelError
from tunesmith.export.adapters import check_mergeable, merge_adapters
from tunesmith.export.card import CardFacts, render_card
from tunesmith.export.compression import compress_folder, find_exact_layers, find_scheme
from tunesmith.export.probe import PROBE_TEXT, measure_logits
from tunesmith.inference.load import hide_progress_without_terminal, load_run_tokenizer
from tunesmith.inference.local import resolve_stop_ids
from tunesmith.models import LoadedModel, load_base_config, load_model
from tunesmith.models.locations import AdaptedLocation, resolve_with_adapters
from tunesmith.models.probe import relative_difference
from tunesmith.models.quantization.qat import CompressionScheme
from tunesmith.models.reward import (
    describes_reward_model,
    drop_head_bias,
    set_scoring_pad,
)
from tunesmith.models.vocabulary import check_vocabulary
from tunesmith.runtime.files import (
    atomic_directory,
    check_writable,
    explain_failed_writes,
    make_readable,
    write_text_atomic,
)

RELOAD_TOLERANCE = 1e-2
"""Largest difference of logits that reloading may make, as a share of the largest logit.

Not exact: transformers keeps some weights of some models in float32 when it loads.
"""

_LEFT_NOTHING = "Nothing of it was left there: make room, or name another folder."


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was written and how well it was checked."""

    folder: Path
    dtype: torch.dtype
    num_parameters: int
    merge_difference: float | None
    """Largest difference between logits with the adapters attached and merged, as a share of the largest logit."""

    reload_difference: float
    """The same between the model in memory and the folder reloaded."""

    end_markers: tuple[str, ...]
    """Tokens that stop an answer, as written to the generation configuration."""

    is_reward: bool = False
    """Whether it is a reward model, which gives scores and no answers."""

    compressed: str | None = None
    """Scheme that the written weights are compressed in; `None` where they are exact."""


@dataclass(frozen=True, slots=True)
class _Source:
    """What an export starts from."""

    config: RunConfig
    tokenizer: PreTrainedTokenizerBase
    template: ChatTemplate | None
    found: AdaptedLocation
    scheme: CompressionScheme | None
    """What the written weights are compressed to."""

    is_reward: bool
    probe: Tensor
    """Tokens whose logits are compared at every step. Shape [1, tokens]."""

    @property
    def end_markers(self) -> Sequence[str]:
        """Texts that end an answer."""
        return () if self.template is None else self.template.end_markers


@dataclass(frozen=True, slots=True)
class _Merged:
    """The model with its adapters merged, and what to say of it."""

    model: PreTrainedModel
    dtype: torch.dtype
    difference: float | None
    exact_layers: Sequence[str]
    card: CardFacts


def export_model(config: RunConfig) -> ExportReport:
    """Merge the adapters of a configuration into its model and write a folder that stands alone.

    The folder holds the weights in shards, the tokenizer with the chat template of training, and a generation
    configuration with every token that ends an answer.

    Raises:
        ConfigError: `export_dir` is missing or in use.
        ModelError: One of the checks failed; nothing is left behind.
    """
    hide_progress_without_terminal()
    out = _resolve_destination(config)
    source = _find_source(config)
    merged = _merge(source)
    report = ExportReport(
        folder=out,
        dtype=merged.dtype,
        num_parameters=merged.card.num_parameters,
        merge_difference=merged.difference,
        reload_difference=0.0,
        end_markers=tuple(merged.card.end_markers),
        is_reward=source.is_reward,
        compressed=merged.card.compressed,
    )
    expected, exact_layers = measure_logits(merged.model, source.probe), merged.exact_layers
    needed = merged.card.num_parameters * merged.dtype.itemsize
    with atomic_directory(out, overwrite=out.exists()) as folder:
        with explain_failed_writes(out, ModelError, _LEFT_NOTHING, needed):
            _write(folder, out.name, source, merged)
        del merged  # two copies of a large model may not fit
        difference = check_reload(
            folder,
            expected,
            source.probe,
            _merge_device(config),
            is_reward=source.is_reward,
            trust_remote_code=config.model.trust_remote_code,
        )
        if source.scheme is not None:
            compress_folder(
                folder,
                source.scheme,
                source.probe,
                exact_layers=exact_layers,
                shard_size=f"{config.export.export_size}GB",
                trust_remote_code=config.model.trust_remote_code,
            )
            make_readable(folder)
    return replace(report, reload_difference=difference)


def _find_source(config: RunConfig) -> _Source:
    """Find model, adapters, tokenizer and template, and refuse what cannot be merged."""
    tokenizer = load_run_tokenizer(config)
    template = _find_template(config, tokenizer)
    if template is not None:
        template.apply_to_tokenizer(tokenizer)
    probe = torch.tensor([tokenizer(PROBE_TEXT, add_special_tokens=False)["input_ids"]])
    found = resolve_with_adapters(config.model, config.adapter.adapter_name_or_path)
    check_mergeable(found.adapters, config.export)
    is_reward = config.objective.stage == "rm" or describes_reward_model(found, load_base_config(config).to_dict())
    if is_reward:
        config = replace(config, objective=replace(config.objective, stage="rm"))
        set_scoring_pad(tokenizer, template.end_markers if template is not None else ())
    scheme = find_scheme(config, (*reversed(found.adapters), found.base.source), is_reward=is_reward)
    return _Source(config, tokenizer, template, found, scheme, is_reward, probe)


def _merge(source: _Source) -> _Merged:
    """Load the model, merge the adapters exactly, round, and name what ends an answer."""
    config, tokenizer, found = source.config, source.tokenizer, source.found
    loaded = _load_exact(config, tokenizer, found.base.source, found.adapters)
    dtype = resolve_export_dtype(config.model.infer_dtype, loaded.stored_dtype)
    exact = loaded.model.to(_merge_device(config))
    model, difference = merge_adapters(exact, found.adapters, source.probe, config.export, seed=config.training.seed)
    exact_layers = () if source.scheme is None else find_exact_layers(model, source.scheme)
    cast_parameters(model, dtype)
    if source.is_reward:
        drop_head_bias(model)
    stop_ids = () if source.is_reward else write_generation_settings(model, tokenizer, source.end_markers)
    check_vocabulary(model, tokenizer)
    card = CardFacts(
        base=found.base.name,
        adapters=found.adapters,
        combination=config.export.adapter_combination,
        dtype=str(dtype).removeprefix("torch."),
        num_parameters=model.num_parameters(),
        template=source.template.name if source.template is not None else None,
        end_markers=tuple(tokenizer.convert_ids_to_tokens(list(stop_ids))),
        is_reward=source.is_reward,
        compressed=None if source.scheme is None else source.scheme.scheme,
    )
    return _Merged(model, dtype, difference, exact_layers, card)


def _write(folder: Path, name: str, source: _Source, merged: _Merged) -> None:
    merged.model.save_pretrained(folder, max_shard_size=f"{source.config.export.export_size}GB")
    source.tokenizer.save_pretrained(folder)
    write_text_atomic(folder / "README.md", render_card(merged.card, name))
    make_readable(folder)


def check_reload(
    folder: Path,
    expected: Tensor,
    probe: Tensor,
    device: torch.device,
    *,
    is_reward: bool = False,
    trust_remote_code: bool = False,
) -> float:
    """Load a written folder and compare what it gives with the model in memory; return the difference."""
    kind = AutoModelForSequenceClassification if is_reward else AutoModelForCausalLM
    reloaded = kind.from_pretrained(folder, dtype="auto", trust_remote_code=trust_remote_code)
    reloaded = reloaded.eval().to(device)
    difference = relative_difference(measure_logits(reloaded, probe), expected)
    if not difference <= RELOAD_TOLERANCE:
        raise ModelError(
            f"The model that was written gives other logits than the one in memory (by {difference:.2g} of their "
            f"range, {RELOAD_TOLERANCE:g} is allowed), so the folder was removed. Check the disk for errors, and "
            "that the installed transformers can save this architecture."
        )
    return difference


def resolve_export_dtype(asked: str, stored: torch.dtype | None) -> torch.dtype:
    """Return the type that weights are written in.

    Args:
        asked: `infer_dtype`; `auto` keeps the stored type.
        stored: Type that the base model was stored in. GGUF files have none of their own: they become bfloat16.
    """
    if asked != "auto":
        return {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}[asked]
    return stored or torch.bfloat16


def cast_parameters(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Round the weights to a type, in place.

    Buffers stay as they are: rotary frequencies are computed in float32 when the model is loaded again, too.
    """
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    model.config.dtype = dtype


def write_generation_settings(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, end_markers: Sequence[str]
) -> tuple[int, ...]:
    """Name every token that ends an answer in the model's generation configuration; return their ids."""
    stop_ids = resolve_stop_ids(model, tokenizer, end_markers)
    settings = model.generation_config
    settings.eos_token_id = list(stop_ids) if len(stop_ids) > 1 else (stop_ids[0] if stop_ids else None)
    settings.bos_token_id = tokenizer.bos_token_id
    settings.pad_token_id = tokenizer.pad_token_id
    return stop_ids


def _load_exact(
    config: RunConfig, tokenizer: PreTrainedTokenizerBase, base: str, adapters: Sequence[str]
) -> LoadedModel:
    """Load the base model alone in float32, with room for the adapters' tokens; compressed weights are read back."""
    exact = replace(
        config,
        model=replace(config.model, infer_dtype="float32", model_name_or_path=base),
        adapter=replace(config.adapter, adapter_name_or_path=tuple(adapters)),
    )
    return load_model(exact, tokenizer, is_trainable=False, needs_exact=True)


def _merge_device(config: RunConfig) -> torch.device:
    uses_accelerator = config.export.export_device == "auto" and torch.cuda.is_available()
    return torch.device("cuda" if uses_accelerator else "cpu")


def _resolve_destination(config: RunConfig) -> Path:
    if config.export.export_dir is None:
        raise ConfigError("export_dir is not set, so there is no place to write the model. Name a folder.")
    out = Path(config.export.export_dir)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"export_dir is {out}, which exists and is not an empty folder. Name a new one, or empty it.")
    check_writable(out, "export_dir")
    return out


def _find_template(config: RunConfig, tokenizer: PreTrainedTokenizerBase) -> ChatTemplate | None:
    """Return the chat template, or `None` for a base model that has none and none was asked for."""
    if config.data.template == "auto" and tokenizer.chat_template is None:
        return None
    return resolve_template(config.data, tokenizer)
