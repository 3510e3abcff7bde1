"""The optimizer of a run."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from tunesmith.config.optimizers import IN_BACKWARD_ALONE
from tunesmith.config.training import TrainingConfig
from tunesmith.errors import ModelError
from tunesmith.models.heads import find_base_model
from tunesmith.runtime.optional import require
from tunesmith.runtime.ranks import current_ranks
from tunesmith.training.optimizers.blockwise import build_badam
from tunesmith.training.optimizers.by_structure import build_adam_mini, build_muon
from tunesmith.training.optimizers.groups import LoraPlusRates, build_parameter_groups, keep_embeddings_exact
from tunesmith.training.optimizers.low_rank import build_apollo, build_galore
from tunesmith.training.optimizers.sets import Groups, InBackward

logger = logging.getLogger(__name__)

FindClass = Callable[[], tuple[type[Any], dict[str, Any]]]
"""Gives the class and the options of an optimizer of transformers."""

_WHOLE: Mapping[str, Callable[[nn.Module, TrainingConfig, Groups], Optimizer]] = {
    "use_badam": build_badam,
    "use_adam_mini": build_adam_mini,
    "use_muon": build_muon,
}
_BY_GROUPS: Mapping[
    str, Callable[[nn.Module, TrainingConfig, Groups], tuple[Callable[[Groups], Optimizer], Groups]]
] = {"use_galore": build_galore, "use_apollo": build_apollo}


def build_optimizer(
    model: nn.Module, settings: TrainingConfig, find_class: FindClass, lora_plus: LoraPlusRates | None = None
) -> Any:
    """Build the optimizer that the settings name, over our parameter groups.

    Args:
        model: With its trained part chosen.
        settings: Of the run.
        find_class: Asked where transformers has the optimizer.
        lora_plus: Rates of LoRA's B factors.

    Raises:
        ModelError: A pattern of a learning rate or a target matches nothing, or several processes cannot use it.
        MissingDependencyError: Its package is absent.
    """
    groups = build_parameter_groups(
        model.named_parameters(),
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        lora_plus=lora_plus,
        rates=settings.learning_rate_groups or {},
        head=find_base_model(model).get_output_embeddings(),
    )
    if settings.optim in IN_BACKWARD_ALONE:
        _check_one_process(f"optim: {settings.optim}")
        kind, options = find_class()
        return kind(**options)
    for switch, build_whole in _WHOLE.items():
        if vars(settings)[switch]:
            return build_whole(model, settings, groups)
    make, groups = _resolve_kind(model, settings, groups, find_class)
    if settings.backward_updater is not None:
        _check_one_process(f"{settings.backward_updater}: true")
        return InBackward(make, groups)
    return make(groups)


def _resolve_kind(
    model: nn.Module, settings: TrainingConfig, groups: Groups, find_class: FindClass
) -> tuple[Callable[[Groups], Optimizer], Groups]:
    for switch, build_by_groups in _BY_GROUPS.items():
        if vars(settings)[switch]:
            return build_by_groups(model, settings, groups)
    if settings.optim == "came":
        package: Any = require("came_pytorch", "came", "train with CAME")
        # The third mean is CAME's own; 0.9999 is its authors' choice.
        betas = (settings.adam_beta1, settings.adam_beta2, 0.9999)
        return lambda parts: package.CAME(parts, lr=settings.learning_rate, betas=betas), groups
    kind, options = find_class()
    if "bitsandbytes" in kind.__module__ and options.get("optim_bits") == 8:
        keep_embeddings_exact(model)
    return lambda parts: kind(parts, **options), groups


def _check_one_process(setting: str) -> None:
    if current_ranks().world_size > 1:
        raise ModelError(
            f"{setting} updates parameters before the gradients of other processes are there. Start one process, or "
            "remove it."
        )
