"""Which layers get a LoRA adapter: names and groups of `lora_target`, resolved against the loaded model."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedModel

from tunesmith.errors import ModelError
from tunesmith.models.adapters.modules import (
    NamedLinear,
    list_expert_parameters,
    list_linears,
    matches,
    sorted_leaves,
)

_EVERYTHING = frozenset({"all", "all-linear"})
_GROUP = re.compile(r"^(?:[a-z0-9.\-]+(?:_[a-z0-9.\-]+)*_)?(mlp|attn)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LoraTargets:
    """What `lora_target` means for one model."""

    modules: tuple[str, ...]
    """Names for peft's `target_modules`: last parts where these are unambiguous, else full names."""

    parameters: tuple[str, ...]
    """Fused expert weights for peft's `target_parameters`."""

    notes: tuple[str, ...]
    """What the user should know, such as experts that get no adapter."""


def resolve_lora_targets(model: PreTrainedModel, targets: Sequence[str]) -> list[str]:
    """Return the module names that `lora_target` means, for peft's `target_modules`.

    Args:
        model: The loaded model, without adapters.
        targets: `all`, `all-linear`, groups `<family>_mlp` and `<family>_attn` (any family name), or module names.

    Raises:
        ModelError: A target matches nothing; the message lists what there is.
    """
    return list(resolve_targets(model, targets).modules)


def resolve_targets(model: PreTrainedModel, targets: Sequence[str]) -> LoraTargets:
    """Resolve `lora_target` into modules and fused expert weights; see `resolve_lora_targets`."""
    linears, experts = list_linears(model), list_expert_parameters(model)
    chosen: dict[str, None] = {}
    parameters: dict[str, None] = {}
    missing = []
    for target in targets:
        modules = _select(model, linears, target)
        fused = [] if target in _EVERYTHING else _select_experts(experts, target)
        if not modules and not fused:
            missing.append(target)
        chosen.update(dict.fromkeys(modules))
        parameters.update(dict.fromkeys(fused))
    if missing:
        raise ModelError(_explain_missing(model, missing, linears, experts))
    notes = []
    if experts and not parameters:
        notes.append(
            f"lora_target: the experts ({', '.join(_expert_suffixes(experts))}) get no adapter; add 'experts' to "
            "lora_target to train them too, which needs memory for a whole layer of experts at a time"
        )
    return LoraTargets(
        tuple(_shorten(list(chosen), [name for name, _ in model.named_modules()])),
        tuple(_expert_suffixes(parameters)),
        tuple(notes),
    )


def _select(model: PreTrainedModel, linears: list[NamedLinear], target: str) -> list[str]:
    if target in _EVERYTHING:
        return [linear.name for linear in linears]
    exact = [name for name, module in model.named_modules() if matches(name, target) and not list(module.children())]
    if exact:
        return exact
    group = _GROUP.match(target)
    if group:
        wants_attention = group[1].lower() == "attn"
        return [each.name for each in linears if each.is_in_layers and each.is_attention == wants_attention]
    return [each.name for each in linears if f".{target}." in f".{each.name}"]  # a container such as self_attn


def _select_experts(experts: list[str], target: str) -> list[str]:
    group = _GROUP.match(target)
    if target == "experts" or (group and group[1].lower() == "mlp"):
        return experts
    return [name for name in experts if matches(name, target)]


def _expert_suffixes(names: Sequence[str] | dict[str, None]) -> list[str]:
    return list(dict.fromkeys(name[name.index("experts.") :] for name in names))


def _shorten(chosen: list[str], everything: list[str]) -> list[str]:
    """Use last parts of names instead of hundreds of full ones, where this selects exactly the same modules."""
    result: dict[str, None] = {}
    for leaf in sorted_leaves(chosen):
        mine = {name for name in chosen if matches(name, leaf)}
        result.update(dict.fromkeys([leaf] if mine == {n for n in everything if matches(n, leaf)} else sorted(mine)))
    return list(result)


def _explain_missing(model: PreTrainedModel, missing: list[str], linears: list[NamedLinear], experts: list[str]) -> str:
    family = model.config.model_type
    attention = sorted_leaves(each.name for each in linears if each.is_in_layers and each.is_attention)
    others = sorted_leaves(each.name for each in linears if each.is_in_layers and not each.is_attention)
    groups = [f"{family}_attn ({', '.join(attention)})" if attention else ""]
    groups += [f"{family}_mlp ({', '.join(others)})" if others else ""]
    groups += [f"experts ({', '.join(_expert_suffixes(experts))})" if experts else ""]
    names = ", ".join(f"'{name}'" for name in missing)
    return (
        f"lora_target: {names} matches nothing in {type(model).__name__}. It has the modules "
        f"{', '.join(sorted_leaves(each.name for each in linears))} and the groups all, all-linear, "
        f"{', '.join(group for group in groups if group)}."
    )
