"""Stretching rotary positions so that rows may be longer than the model was trained with."""

import math
from typing import Any

from transformers import PreTrainedConfig

from tunesmith.config.model import RopeScaling
from tunesmith.errors import ModelError


def apply_rope_scaling(config: PreTrainedConfig, scaling: RopeScaling, max_tokens: int) -> str:
    """Set rotary scaling in a model's configuration, before the model is built from it.

    The factor is the smallest whole number that makes room for `max_tokens`; it is saved with the model, so that it is
    served as it was trained.

    Args:
        config: Of the model; changed in place.
        scaling: Kind of scaling.
        max_tokens: Longest row (`cutoff_len`).

    Returns:
        What was done, for the plan.

    Raises:
        ModelError: The model has no rotary positions, is scaled already, or has room enough.
    """
    text = config.get_text_config()
    parameters = text.to_dict().get("rope_parameters")
    if not parameters:
        raise ModelError(f"rope_scaling: {text.model_type} has no rotary positions to stretch. Remove rope_scaling.")
    current = int(text.max_position_embeddings)
    if max_tokens <= current:
        raise ModelError(
            f"rope_scaling: {scaling} would have no effect: the model takes {current} tokens and cutoff_len is "
            f"{max_tokens}. Remove rope_scaling or raise cutoff_len."
        )
    factor = math.ceil(max_tokens / current)
    # Models with sliding layers keep one set per kind of layer; only full attention reaches further than before.
    is_nested = all(isinstance(value, dict) for value in parameters.values())
    if is_nested:
        scaled = parameters["full_attention"] | _scaled(parameters["full_attention"], scaling, factor, current)
        text.rope_parameters = parameters | {"full_attention": scaled}
    else:
        text.rope_parameters = parameters | _scaled(parameters, scaling, factor, current)
    if scaling != "dynamic":  # dynamic scaling measures rows against the original length and must keep it
        text.max_position_embeddings = current * factor
    return f"rope_scaling: {scaling}, {current} -> {current * factor} tokens (factor {factor})"


def _scaled(parameters: dict[str, Any], scaling: RopeScaling, factor: int, original: int) -> dict[str, Any]:
    present = parameters.get("rope_type", "default")
    if present != "default":
        raise ModelError(
            f"rope_scaling: {scaling} was asked for, but the model is already scaled ({present}, factor "
            f"{parameters.get('factor')}). Remove rope_scaling."
        )
    settings: dict[str, Any] = {"rope_type": scaling, "factor": float(factor)}
    if scaling in {"yarn", "llama3"}:
        settings["original_max_position_embeddings"] = original
    if scaling == "llama3":
        settings |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return settings
