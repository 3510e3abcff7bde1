"""What is learnt: an objective runs the model on a batch and returns a summed loss and a count.

`build_objective` picks one by stage. Losses are pure functions in `losses`; the one place that divides is the trainer.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["LossSum", "Objective", "ObjectiveParts", "build_objective"]

if TYPE_CHECKING:
    from tunesmith.objectives.base import LossSum, Objective
    from tunesmith.objectives.registry import ObjectiveParts, build_objective


def __getattr__(name: str) -> Any:
    if name in ("LossSum", "Objective"):
        from tunesmith.objectives import base

        return getattr(base, name)
    if name in ("ObjectiveParts", "build_objective"):
        from tunesmith.objectives import registry

        return getattr(registry, name)
    raise AttributeError(f"module 'tunesmith.objectives' has no attribute {name!r}")
