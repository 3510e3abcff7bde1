"""Whether the prompt of a pair is computed once for both completions."""

from dataclasses import dataclass

import numpy as np
from torch import nn

from tunesmith.config import RunConfig
from tunesmith.config.objective import PAIR_STAGES
from tunesmith.data import PreparedData
from tunesmith.data.batches import BatchLayout
from tunesmith.data.loading.datasets import ExampleDataset, PackedDataset
from tunesmith.errors import ConfigError, ModelError
from tunesmith.models import LoadedModel
from tunesmith.models.flex import FLEX
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
    config: RunConfig,
    loaded: LoadedModel,
    layout: BatchLayout,
    data: PreparedData,
    reference: nn.Module | None = None,
) -> PrefixSharing:
    """Return what `prefix_sharing` asks for, or what saves work where that is left to us.

    With sharing, it is proved on the model that completions behind one prompt do not see each other.

    Args:
        config: Of the run.
        loaded: Its model.
        layout: Of its batches.
        data: Its rows.
        reference: A model of its own that scores the same batches, if there is one.

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
    if not obstacle and asked == "auto" and share is not None and share < _LEAST_SHARE:
        obstacle = f"prompts are {share:.0%} of the tokens, which saves nothing"
    if not obstacle and (found := _find_touching(loaded, reference)):
        if asked is True:
            raise ModelError(f"prefix_sharing: {found}. Set prefix_sharing: false.")
        obstacle = found
    if obstacle and asked is True:
        raise ConfigError(f"prefix_sharing is true, but {obstacle}. Set prefix_sharing: auto, or change that.")
    if obstacle:
        return PrefixSharing(False, f"the prompt of a pair is computed twice: {obstacle}")
    saved = "" if share is None else f", which leaves out {share:.0%} of the tokens"
    return PrefixSharing(True, f"the prompt of a pair is computed once{saved}")


def _find_touching(loaded: LoadedModel, reference: nn.Module | None) -> str:
    """Return in which of the models completions behind one prompt see each other, and how much."""
    found = find_shared_prefix_obstacle(loaded.model, loaded.precision)
    if not found and reference is not None:
        found = find_shared_prefix_obstacle(reference, loaded.precision)
        return f"in the reference, {found}" if found else ""
    return found


def _find_obstacle(loaded: LoadedModel, layout: BatchLayout) -> str:
    if layout != "flat":
        return "rows are padded (padding_free is off), and a shared prompt needs rows end to end"
    if loaded.attention.implementation not in {SEGMENTS, FLEX}:
        return (
            f"the attention in use ({loaded.attention.implementation}) does not know of branches; flash_attn: flex "
            "and segments do"
        )
    return ""


def _shared_tokens(data: PreparedData) -> float | None:
    """Return which share of the tokens of all pairs are prompts that are there a second time; `None` for a stream."""
    if data.stream is not None:
        return None
    rows = data.train if data.train is not None else next(iter(data.evals.values()), None)
    if isinstance(rows, PackedDataset):
        rows = rows.examples  # type: ignore[assignment]
    if not isinstance(rows, ExampleDataset):
        return 0.0
    prompts = rows.prompt_ends
    total = float(np.sum(rows.lengths + prompts))  # lengths count the prompt once
    return float(np.sum(prompts)) / total if total else 0.0
