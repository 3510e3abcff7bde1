"""GaLore (Zhao et al. 2024) and APOLLO (Zhu et al. 2024): optimizer states of matrices in a space of few dimensions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from transformers import PreTrainedModel

from tunesmith.config.training import TrainingConfig
from tunesmith.errors import ModelError
from tunesmith.models.heads import find_base_model
from tunesmith.runtime.optional import require
from tunesmith.training.optimizers.sets import Groups

_GALORE_CLASSES = {
    "adamw_torch": "GaLoreAdamW",
    "adamw_torch_fused": "GaLoreAdamW",
    "adamw_8bit": "GaLoreAdamW8bit",
    "adamw_bnb_8bit": "GaLoreAdamW8bit",
    "adafactor": "GaLoreAdafactor",
}


def build_galore(
    model: nn.Module, settings: TrainingConfig, groups: Groups
) -> tuple[Callable[[Groups], Optimizer], Groups]:
    """Return what builds GaLore's optimizer, and the groups, those of projected matrices apart."""
    package = require("galore_torch", "galore", "train with GaLore")
    projection = {
        "rank": settings.galore_rank,
        "update_proj_gap": settings.galore_update_interval,
        "scale": settings.galore_scale,
        "proj_type": settings.galore_proj_type,
    }
    name = _GALORE_CLASSES[settings.optim]
    kind = _with_plain_projectors(vars(package)[name])
    options: dict[str, Any] = {"lr": settings.learning_rate}
    if name == "GaLoreAdafactor":
        options |= {"scale_parameter": False, "relative_step": False}
    else:
        options |= {"betas": (settings.adam_beta1, settings.adam_beta2), "eps": settings.adam_epsilon}
    if name == "GaLoreAdamW":
        options["no_deprecation_warning"] = True
    apart = split_targets(model, groups, settings.galore_target, "galore_target", projection)
    return lambda parts: kind(parts, **options), apart


def build_apollo(
    model: nn.Module, settings: TrainingConfig, groups: Groups
) -> tuple[Callable[[Groups], Optimizer], Groups]:
    """Return what builds APOLLO's optimizer, and the groups, those of projected matrices apart."""
    package = require("apollo_torch", "apollo", "train with APOLLO")
    projection = {
        "rank": settings.apollo_rank,
        "update_proj_gap": settings.apollo_update_interval,
        "scale": settings.apollo_scale,
        "proj": settings.apollo_proj,
        "proj_type": settings.apollo_proj_type,
        "scale_type": settings.apollo_scale_type,
    }
    kind = _with_plain_projectors(package.APOLLOAdamW)
    options = {
        "lr": settings.learning_rate,
        "betas": (settings.adam_beta1, settings.adam_beta2),
        "eps": settings.adam_epsilon,
        "scale_front": settings.apollo_scale_front,
    }
    apart = split_targets(model, groups, settings.apollo_target, "apollo_target", projection)
    return lambda parts: kind(parts, **options), apart


def split_targets(
    model: nn.Module, groups: Groups, targets: Sequence[str], setting: str, projection: Mapping[str, Any]
) -> Groups:
    """Return groups in which projected matrices stand apart, with the settings of their projection.

    Args:
        model: Of the run.
        groups: Of all trained parameters.
        targets: `all`, or parts of the names of linear layers.
        setting: Where `targets` come from, for messages.
        projection: What the groups of projected matrices say besides.

    Raises:
        ModelError: A target is in no name, or nothing that is trained is a target.
    """
    base = find_base_model(model)
    chosen = _find_targets(base, targets, setting)
    apart: Groups = []
    for group in groups:
        inside = [each for each in group["params"] if id(each) in chosen]
        outside = [each for each in group["params"] if id(each) not in chosen]
        apart += [{**group, "params": outside}] if outside else []
        apart += [{**group, **projection, "params": inside}] if inside else []
    if not any("rank" in group for group in apart):
        raise ModelError(f"{setting}: {', '.join(targets)} names no linear layer that is trained. Set {setting}: all.")
    return apart


def _find_targets(base: PreTrainedModel, targets: Sequence[str], setting: str) -> set[int]:
    head = base.get_output_embeddings()
    linears = {
        name: module for name, module in base.named_modules() if isinstance(module, nn.Linear) and module is not head
    }
    if "all" in targets:
        return {id(module.weight) for module in linears.values()}
    for target in targets:
        if not any(target in name for name in linears):
            leaves = dict.fromkeys(name.rpartition(".")[2] for name in linears)
            raise ModelError(
                f"{setting}: '{target}' is in no name of a linear layer of {type(base).__name__}. There are "
                f"{', '.join(leaves)}; all is every one."
            )
    return {id(module.weight) for name, module in linears.items() if any(target in name for target in targets)}


def _with_plain_projectors(kind: type[Any]) -> type[Any]:
    """Return an optimizer class whose state holds plain values: checkpoints are read without unpickling objects."""

    class WithPlainProjectors(kind):
        def state_dict(self) -> dict[str, Any]:
            """Return the state, with each projector as the dictionary of what it is made of."""
            whole: dict[str, Any] = super().state_dict()
            whole["state"] = {key: _flatten(state) for key, state in whole["state"].items()}
            return whole

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            """Take over a state and build the projectors again; PyTorch would mangle their text on the way."""
            states = {key: dict(state) for key, state in state_dict["state"].items()}
            projectors = {key: state.pop("projector") for key, state in states.items() if "projector" in state}
            super().load_state_dict({**state_dict, "state": states})
            keys = [key for group in state_dict["param_groups"] for key in group["params"]]
            parameters = [each for group in self.param_groups for each in group["params"]]
            for key, parameter in zip(keys, parameters, strict=True):
                if key in projectors:
                    self.state[parameter]["projector"] = _rebuild(projectors[key], parameter.device)

    return WithPlainProjectors


def _flatten(state: Mapping[str, Any]) -> dict[str, Any]:
    plain = dict(state)
    projector = plain.get("projector")
    if projector is not None and not isinstance(projector, dict):
        plain["projector"] = {"kind": f"{type(projector).__module__}.{type(projector).__name__}", **vars(projector)}
    return plain


def _rebuild(plain: Mapping[str, Any], device: torch.device) -> Any:
    parts = dict(plain)
    module, _, name = parts.pop("kind").rpartition(".")
    cls = vars(require(module, "galore", "read the state of an optimizer"))[name]
    projector = cls.__new__(cls)
    matrix = parts["ortho_matrix"]
    if isinstance(matrix, list | tuple):
        parts["ortho_matrix"] = [each.to(device) for each in matrix]
    elif matrix is not None:
        parts["ortho_matrix"] = matrix.to(device)
    vars(projector).update(parts)
    return projector
