"""All objectives, by the stage that asks for them."""

from collections.abc import Callable, Mapping
from typing import Any

from tunesmith.config.objective import ObjectiveConfig
from tunesmith.models.heads import LanguageHead
from tunesmith.objectives.base import Objective
from tunesmith.objectives.next_token import NextTokenObjective, router_loss_weight

ObjectiveBuilder = Callable[[ObjectiveConfig, LanguageHead, Mapping[str, Any]], Objective]


def _build_next_token(
    config: ObjectiveConfig, head: LanguageHead, model_settings: Mapping[str, Any]
) -> NextTokenObjective:
    return NextTokenObjective(
        head=head,
        label_smoothing=config.label_smoothing_factor,
        z_loss=config.z_loss,
        chunk_tokens=None if config.head_chunk_tokens == "auto" else int(config.head_chunk_tokens),
        router_loss_weight=router_loss_weight(model_settings),
    )


OBJECTIVES: Mapping[str, ObjectiveBuilder] = {
    "pt": _build_next_token,
    "sft": _build_next_token,
}


def build_objective(
    config: ObjectiveConfig, head: LanguageHead, model_settings: Mapping[str, Any] | None = None
) -> Objective:
    """Return the objective of a stage.

    Args:
        config: Checked settings; every stage they allow has an entry in `OBJECTIVES`.
        head: The output head of the model that will be trained.
        model_settings: The model's configuration as a mapping (`config.to_dict()`), for what a family adds to the loss.
    """
    return OBJECTIVES[config.stage](config, head, model_settings or {})
