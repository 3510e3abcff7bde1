"""Refusing models that transformers would complete with random numbers."""

from collections.abc import Mapping
from typing import Any

from tunesmith.errors import ModelError


def check_complete(name: str, loading_info: Mapping[str, Any]) -> None:
    """Check that every weight of a model came from its files.

    Args:
        name: Of the model, for the message.
        loading_info: What `from_pretrained(..., output_loading_info=True)` gave.

    Raises:
        ModelError: Some are missing or have another shape.
    """
    wrong = sorted(loading_info["missing_keys"]) + sorted(str(key) for key in loading_info["mismatched_keys"])
    if wrong:
        raise ModelError(
            f"model_name_or_path: {name} lacks {len(wrong)} of the model's weights, or has them in another "
            f"shape: {', '.join(wrong[:3])}{' ...' if len(wrong) > 3 else ''}. They would be random. Give a complete "
            "model, or set train_from_scratch: true."
        )
