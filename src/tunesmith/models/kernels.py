"""Fused kernels of other packages: put into a model, and proved to compute the same."""

import logging
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from tunesmith.errors import ModelError
from tunesmith.models.precision import Precision
from tunesmith.models.probe import probe_logits, relative_difference
from tunesmith.runtime.optional import require

logger = logging.getLogger(__name__)

_TOLERANCE = 5e-2
"""Largest difference of logits, as a share of the largest: fused kernels in half precision round elsewhere."""


def use_liger_kernels(model: PreTrainedModel, precision: Precision) -> str:
    """Replace norms, rotary positions and gated layers of a model by liger's kernels, in place.

    Args:
        model: Without adapters, on its device.
        precision: Of the run.

    Returns:
        What was done, for the plan.

    Raises:
        ModelError: The package does not know the family, or the model computes something else with the kernels.
        MissingDependencyError: The package is absent.
    """
    liger: Any = require("liger_kernel.transformers.monkey_patch", "liger", "use fused kernels")
    family = model.config.get_text_config().model_type
    if family not in liger.MODEL_TYPE_TO_APPLY_LIGER_FN:
        raise ModelError(
            f"enable_liger_kernel: liger-kernel has no kernels for {family}. Remove enable_liger_kernel, or update the "
            "package."
        )
    expected = probe_logits(model, precision)
    # Our own loss makes logits only where a label is, which saves more than a fused cross-entropy of all positions.
    liger._apply_liger_kernel_to_instance(model=model, fused_linear_cross_entropy=False, cross_entropy=False)
    check_same_logits(probe_logits(model, precision), expected, "enable_liger_kernel: true", "enable_liger_kernel")
    return f"liger kernels for {family}, checked against the model without them"


def check_flash_attention(model: PreTrainedModel, implementation: str, precision: Precision) -> None:
    """Prove that flash attention gives the logits of PyTorch's own attention.

    Args:
        model: Loaded with flash attention, on its device.
        implementation: Its name in transformers.
        precision: Of the run.

    Raises:
        ModelError: It does not.
    """
    found = probe_logits(model, precision)
    model.set_attn_implementation("sdpa")
    try:
        expected = probe_logits(model, precision)
    finally:
        model.set_attn_implementation(implementation)
    check_same_logits(found, expected, f"flash attention ({implementation})", "flash_attn")


def check_same_logits(found: Tensor, expected: Tensor, what: str, setting: str) -> None:
    """Compare logits with and without something that must not change them.

    Args:
        found: With it. Shape [tokens, vocabulary].
        expected: Without it. Same shape.
        what: Name of it, for the message.
        setting: What to remove if they differ.

    Raises:
        ModelError: They differ by more than rounding explains.
    """
    difference = relative_difference(found, expected)
    if not difference <= _TOLERANCE:
        raise ModelError(
            f"{setting}: {what} changes the model's logits by {difference:.2g} of their range, and rounding explains "
            f"{_TOLERANCE:g} at most. Remove {setting}, or update the package and this machine's driver."
        )
    logger.debug("%s: logits differ by %.1e", what, difference)
