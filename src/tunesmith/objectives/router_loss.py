"""What a mixture-of-experts model adds to the loss: the load-balancing term of its router.

Fedus et al. 2021, "Switch Transformers", equation 4; the model computes it, as a mean over its batch.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def weigh_router_loss(output: Any, items: Tensor, weight: float) -> Tensor | float:
    """Return the router's loss, a mean over the batch, weighed by the batch's items: the trainer divides by all items.

    Args:
        output: What the model returned.
        items: Number of items of the batch.
        weight: See `router_loss_weight`.
    """
    if not weight or output.get("aux_loss") is None:
        return 0.0
    aux_loss: Tensor = output["aux_loss"]
    return weight * aux_loss * items


def router_loss_weight(model_settings: Mapping[str, Any]) -> float:
    """Return the weight of the router's load-balancing loss, 0 for dense models and where routers are not reported.

    Args:
        model_settings: The model's configuration as a mapping (`config.to_dict()`).
    """
    if not model_settings.get("output_router_logits", False):
        return 0.0
    return float(model_settings.get("router_aux_loss_coef") or 0.0)
