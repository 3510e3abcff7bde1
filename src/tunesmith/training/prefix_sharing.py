"""Whether the prompt of a pair is computed once for both completions."""

from dataclasses import dataclass

import numpy as np

from tunesmith.config import RunConfig
from tunesmith.config.objective import PAIR_STAGES
from tunesmith.data import PreparedData
from tunesmith.data.batches import BatchLayout
from tunesmith.data.loading.datasets import ExampleDataset, PackedDataset
from tunesmith.errors import ConfigError, ModelError
from tunesmith.models import LoadedModel
from tunesmith.models.isolation import find_shared_prefix_obstacle
from tunesmith.models.segments import SEGMENTS

_LEAST_SHARE = 0.03
"""Share of all tokens that has to go away: below it, cutting sequences out for attention costs about what is saved."""


@dataclass(frozen=True, slots=True)
class PrefixSharing:
    """The decision, for the collator and for the plan."""

    is_on: bool
    note: str
    """In words; empty where rows are no pairs."""


NO_SHARING = PrefixSharing(False, "")


def resolve_prefix_sharing(
    config: RunConfig, loaded: LoadedModel, layout: BatchLayout, data: PreparedData
) -> PrefixSharing:
    """Return what `prefix_sharing` asks for, or what saves work where that is left to us.

    With sharing, it is proved on the model that completions behind one prompt do not see each other.

    Raises:
        ConfigError: Sharing was asked for where rows are no pairs or are padded.
        ModelError: Sharing was asked for, and this model does not keep completions apart.
    """
    asked = config.loading.prefix_sharing
    if config.objective.stage not in PAIR_STAGES or asked is False:
        note = "prefix_sharing: false" if asked is False and config.objective.stage in PAIR_STAGES else ""
        if asked is True:
            raise ConfigError(
                f"prefix_sharing: true is for pairs (stage {' or '.join(PAIR_STAGES)}), and the stage is "
                f"{config.objective.stage}. Remove it."
            )
        return PrefixSharing(False, note)
    obstacle = _find_obstacle(loaded, layout)
    share = _shared_tokens(data)
    if not obstacle and asked == "auto" and share < _LEAST_SHARE:
        obstacle = f"prompts are {share:.0%} of the tokens, which saves nothing"
    if not obstacle and (found := find_shared_prefix_obstacle(loaded.model, loaded.precision)):
        if asked is True:
            raise ModelError(f"prefix_sharing: {found}. Set prefix_sharing: false.")
        obstacle = found
    if obstacle and asked is True:
        raise ConfigError(f"prefix_sharing is true, but {obstacle}. Set prefix_sharing: auto, or change that.")
    if obstacle:
        return PrefixSharing(False, f"the prompt of a pair is computed twice: {obstacle}")
    return PrefixSharing(True, f"the prompt of a pair is computed once, which leaves out {share:.0%} of the tokens")


def _find_obstacle(loaded: LoadedModel, layout: BatchLayout) -> str:
    if layout != "flat":
        return "rows are padded (padding_free is off), and a shared prompt needs rows end to end"
    if loaded.attention.implementation != SEGMENTS:
        return (
            f"the attention in use ({loaded.attention.implementation}) does not know of branches; flash_attn: segments "
            "does"
        )
    return ""


def _shared_tokens(data: PreparedData) -> float:
    """Return which share of the tokens of all pairs are prompts that are there a second time."""
    rows = data.train if data.train is not None else next(iter(data.evals.values()), None)
    if isinstance(rows, PackedDataset):
        rows = rows.examples  # type: ignore[assignment]
    if not isinstance(rows, ExampleDataset):
        return 0.0
    prompts = rows.prompt_ends
    total = float(np.sum(rows.lengths + prompts))  # lengths count the prompt once
    return float(np.sum(prompts)) / total if total else 0.0
