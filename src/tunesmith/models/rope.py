"""Stretching rotary positions so that rows may be longer than the model was trained with."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from tunesmith.errors import ModelError
from tunesmith.runtime.files import write_json_atomic

ROPE_FILE = "rope_scaling.json"
"""Beside an adapter: the rotary settings of its base model, where a run has changed them."""

_WITH_ORIGINAL = frozenset({"yarn", "llama3", "longrope"})
_DETAILS: Mapping[str, frozenset[str]] = {
    "linear": frozenset(),
    "dynamic": frozenset(),
    "yarn": frozenset({"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}),
    "llama3": frozenset({"low_freq_factor", "high_freq_factor"}),
    "longrope": frozenset({"short_factor", "long_factor", "attention_factor"}),
    "proportional": frozenset({"partial_rotary_factor"}),
}
"""What each method of transformers takes besides `factor` and `original_max_position_embeddings`."""

_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


def apply_rope_scaling(config: PreTrainedConfig, scaling: str | Mapping[str, Any], max_tokens: int) -> str:
    """Set rotary scaling in a model's configuration, before the model is built from it.

    Where no factor is given it is the smallest whole number that makes room for `max_tokens`; it is saved with the
    model, so that it is served as it was trained.

    Args:
        config: Of the model; changed in place.
        scaling: Kind of scaling, or a mapping with `rope_type`, `factor` and what else the kind takes.
        max_tokens: Longest row (`cutoff_len`).

    Returns:
        What was done, for the plan.

    Raises:
        ModelError: The model has no rotary positions, is scaled already, or has room enough; or the kind is unknown, or
            lacks something.
    """
    details: dict[str, Any] = {"rope_type": scaling} if isinstance(scaling, str) else dict(scaling)
    kind = _resolve_kind(details)
    text = config.get_text_config()
    parameters = text.to_dict().get("rope_parameters")
    if not parameters:
        raise ModelError(f"rope_scaling: {text.model_type} has no rotary positions to stretch. Remove rope_scaling.")
    # Models with sliding layers keep one set per kind of layer; only full attention reaches further than before.
    is_nested = all(isinstance(value, dict) for value in parameters.values())
    present = parameters["full_attention"] if is_nested else parameters
    if present.get("rope_type", "default") != "default":
        raise ModelError(
            f"rope_scaling: {kind} was asked for, but the model is already scaled ({present['rope_type']}, factor "
            f"{present.get('factor')}). Remove rope_scaling."
        )
    current = int(text.max_position_embeddings)
    if "factor" not in details:
        if max_tokens <= current:
            raise ModelError(
                f"rope_scaling: {kind} would have no effect: the model takes {current} tokens and cutoff_len is "
                f"{max_tokens}. Remove rope_scaling, raise cutoff_len, or give a factor: "
                f"{{rope_type: {kind}, factor: 2}}."
            )
        details["factor"] = math.ceil(max_tokens / current)
    factor = details["factor"] = float(details["factor"])
    if kind in _WITH_ORIGINAL:
        details.setdefault("original_max_position_embeddings", current)
    scaled = present | (_LLAMA3 if kind == "llama3" else {}) | details
    text.rope_parameters = parameters | {"full_attention": scaled} if is_nested else scaled
    if kind != "dynamic":  # dynamic scaling measures rows against the original length and must keep it
        text.max_position_embeddings = int(current * factor)
    return f"rope_scaling: {kind}, {current} -> {int(current * factor)} tokens (factor {factor:g})"


def write_rope_scaling(config: PreTrainedConfig, folder: str | Path) -> None:
    """Note the rotary settings of a base model beside its adapter, which is of no use under others."""
    text = config.get_text_config()
    settings = {"rope_parameters": text.rope_parameters, "max_position_embeddings": text.max_position_embeddings}
    write_json_atomic(Path(folder) / ROPE_FILE, settings)


def restore_rope_scaling(config: PreTrainedConfig, adapters: Sequence[str]) -> str | None:
    """Give a base model the rotary settings that its last adapter was trained under, before the model is built.

    Returns:
        What was done, for the plan; `None` where no adapter says anything.
    """
    for folder in reversed(adapters):
        file = Path(folder) / ROPE_FILE
        if file.is_file():
            settings = json.loads(file.read_text(encoding="utf-8"))
            text = config.get_text_config()
            text.rope_parameters = settings["rope_parameters"]
            text.max_position_embeddings = settings["max_position_embeddings"]
            return f"rotary positions as the adapter was trained: up to {text.max_position_embeddings:,} tokens"
    return None


def check_same_positions(trained: PreTrainedConfig, asked: PreTrainedConfig, adapter: str) -> None:
    """Refuse to go on with an adapter under other rotary settings than those it was trained under.

    Args:
        trained: Configuration of the model as the adapter was trained.
        asked: As the settings of this run would have it.
        adapter: Its folder, for the message.

    Raises:
        ModelError: They differ.
    """
    before, now = (config.get_text_config() for config in (trained, asked))
    is_same = all(before.rope_parameters.get(key) == value for key, value in now.rope_parameters.items())
    if is_same and before.max_position_embeddings == now.max_position_embeddings:
        return
    raise ModelError(
        f"rope_scaling: would give {now.max_position_embeddings:,} positions ({now.rope_parameters}), but the adapter "
        f"{adapter} was trained under {before.max_position_embeddings:,} ({before.rope_parameters}). Remove "
        "rope_scaling to go on as before, or merge the adapter with `tunesmith export` first."
    )


def _resolve_kind(details: Mapping[str, Any]) -> str:
    kind = str(details.get("rope_type", ""))
    if kind not in _DETAILS:
        raise ModelError(f"rope_scaling: rope_type is '{kind}'; allowed is one of {', '.join(_DETAILS)}.")
    allowed = {"rope_type", "factor", "original_max_position_embeddings", *_DETAILS[kind]}
    unknown = sorted(set(details) - allowed)
    if unknown:
        raise ModelError(
            f"rope_scaling: {kind} does not take {', '.join(unknown)}; it takes {', '.join(sorted(allowed))}."
        )
    if kind == "longrope" and not {"short_factor", "long_factor"} <= set(details):
        raise ModelError(
            "rope_scaling: longrope needs short_factor and long_factor, lists with one number for each pair of "
            "dimensions of a head, found by a search over the model. Where there is none, yarn needs no search."
        )
    factor = details.get("factor", 1.0)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or factor < 1:
        raise ModelError(f"rope_scaling: factor is {factor}; allowed is a number of 1 or more.")
    return kind
