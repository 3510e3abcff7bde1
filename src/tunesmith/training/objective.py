"""The objective of a run, with what it needs of model and data."""

from tunesmith.config import RunConfig
from tunesmith.data import PreparedData
from tunesmith.data.loading.datasets import PackedDataset
from tunesmith.data.loading.feedback import FeedbackDataset
from tunesmith.models import LoadedModel, resolve_head
from tunesmith.models.reward import resolve_score_head
from tunesmith.objectives import Objective, ObjectiveParts, build_objective
from tunesmith.objectives.feedback import resolve_weights
from tunesmith.objectives.registry import build_scorer, needs_reference
from tunesmith.training.reference import build_reference


def build_run_objective(config: RunConfig, loaded: LoadedModel, data: PreparedData) -> Objective:
    """Return what the run learns."""
    if config.objective.stage == "rm":
        return build_objective(
            ObjectiveParts(
                config=config.objective,
                preference=config.preference,
                reward_scorer=resolve_score_head(loaded.model, loaded.precision),
                model_settings=loaded.model.config.to_dict(),
            )
        )
    head = resolve_head(loaded.model, loaded.precision)
    reference = None
    if needs_reference(config.objective, config.preference):
        scorer = build_scorer(config.objective, config.preference, head)
        reference = build_reference(config, loaded, scorer)
    return build_objective(
        ObjectiveParts(
            config=config.objective,
            preference=config.preference,
            head=head,
            reference=reference,
            kto_weights=_kto_weights(config, data),
            model_settings=loaded.model.config.to_dict(),
        )
    )


def _kto_weights(config: RunConfig, data: PreparedData) -> tuple[float, float]:
    rows = data.train.examples if isinstance(data.train, PackedDataset) else data.train
    if not isinstance(rows, FeedbackDataset):
        return 1.0, 1.0
    desirable = rows.num_desirable
    return resolve_weights(config.preference, num_desirable=desirable, num_undesirable=len(rows) - desirable)
