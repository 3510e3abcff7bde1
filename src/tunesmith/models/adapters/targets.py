"""Which layers get a LoRA adapter: names and groups of `lora_target`, resolved against the loaded model."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transformers import PreTrainedModel

from tunesmith.errors import ModelError
from tunesmith.models.adapters.modules import (
    NamedLinear,
    list_expert_parameters,
    list_linears,
    list_routers,
    matches,
    sorted_leaves,
)

_GROUP = re.compile(r"^(?:[a-z0-9.\-]+(?:_[a-z0-9.\-]+)*_)?(mlp|attn)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LoraTargets:
    """What `lora_target` means for one model."""

    modules: tuple[str, ...]
    """Names for peft's `target_modules`: last parts where these are unambiguous, else full names."""

    parameters: tuple[str, ...]
    """Fused weights of experts, and those of routers, for peft's `target_parameters`."""

    notes: tuple[str, ...]
    """What the user should know, such as experts that get no adapter."""


def resolve_lora_targets(model: PreTrainedModel, targets: Sequence[str]) -> list[str]:
    """Return the module names that `lora_target` means, for peft's `target_modules`.

    Args:
        model: The loaded model, without adapters.
        targets: `all`, `all-linear`, `experts`, `routers`, groups `<family>_mlp` and `<family>_attn` (any family name),
            or module names.

    Raises:
        ModelError: A target matches nothing; the message lists what there is.
    """
    return list(resolve_targets(model, targets).modules)


def resolve_targets(model: PreTrainedModel, targets: Sequence[str], *, with_experts: bool = True) -> LoraTargets:
    """Resolve `lora_target` into modules and fused weights; see `resolve_lora_targets`.

    Args:
        model: The loaded model, without adapters.
        targets: Names and groups.
        with_experts: Whether the method can be put on fused weights: `all` means these too then.
    """
    parts = _Parts.of(model)
    modules: dict[str, None] = {}
    parameters: dict[str, None] = {}
    missing = []
    for target in targets:
        chosen, fused = _select(parts, target, with_experts=with_experts)
        if not chosen and not fused:
            missing.append(target)
        modules.update(dict.fromkeys(chosen))
        parameters.update(dict.fromkeys(fused))
    if missing:
        raise ModelError(_explain_missing(model, missing, parts))
    notes = [_describe_coverage(model, modules, parameters)]
    if parts.experts and not any(name in parameters for name in parts.experts):
        reason = "add 'experts' to lora_target" if with_experts else "only finetuning_type: lora can be put on them"
        notes.append(f"lora_target: the experts ({', '.join(_suffixes(parts.experts))}) get no adapter; {reason}")
    return LoraTargets(
        tuple(_shorten(list(modules), [name for name, _ in model.named_modules()])),
        tuple(_suffixes(parameters)),
        tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a model has that an adapter can be put on."""

    linears: list[NamedLinear]
    leaves: list[str]
    """Names of all modules without children."""

    experts: list[str]
    """Fused weights of experts."""

    router_linears: list[str]
    router_weights: list[str]

    @classmethod
    def of(cls, model: PreTrainedModel) -> "_Parts":
        leaves = [name for name, module in model.named_modules() if not list(module.children())]
        return cls(list_linears(model), leaves, list_expert_parameters(model), *list_routers(model))


def _select(parts: _Parts, target: str, *, with_experts: bool) -> tuple[list[str], list[str]]:
    """Return the modules and the fused weights that one target means."""
    linears = [linear.name for linear in parts.linears]
    named = {
        "all": (linears, parts.experts if with_experts else []),
        "all-linear": (linears, []),
        "routers": (parts.router_linears, parts.router_weights),
        "experts": ([name for name in linears if "experts" in name.split(".")], parts.experts),
    }
    if target in named:
        return named[target]
    fused = [name for name in (*parts.experts, *parts.router_weights) if matches(name, target)]
    fused += [name for name in parts.router_weights if matches(name.removesuffix(".weight"), target)]
    exact = [name for name in parts.leaves if matches(name, target) and f"{name}.weight" not in parts.router_weights]
    if exact or fused:
        return exact, fused
    group = _GROUP.match(target)
    if group:
        wants_attention = group[1].lower() == "attn"
        modules = [each.name for each in parts.linears if each.is_in_layers and each.is_attention == wants_attention]
        return modules, parts.experts if with_experts and not wants_attention else []
    # a container such as self_attn
    return [each.name for each in parts.linears if f".{target}." in f".{each.name}"], []


def _suffixes(names: Iterable[str]) -> list[str]:
    """Return ends of the names of fused weights that are the same in every layer, for peft's `target_parameters`."""
    return list(dict.fromkeys(".".join(name.split(".")[-2:]) for name in names))


def _describe_coverage(model: PreTrainedModel, modules: Iterable[str], parameters: Iterable[str]) -> str:
    """Return how many modules of each name get an adapter, and the share of all weights that these hold."""
    sizes = {name: value.numel() for name, value in model.named_parameters()}
    places = [f"{name}.weight" for name in modules] + list(parameters)
    covered = sum(sizes.get(name, 0) for name in places)
    counts = Counter(name.rpartition(".")[2] for name in modules)
    counts.update(Counter(".".join(name.split(".")[-2:]) for name in parameters))
    listed = ", ".join(f"{name} {count}" for name, count in counts.items())
    share = 100 * covered / max(1, sum(sizes.values()))
    return f"adapters on {sum(counts.values()):,} modules ({listed}), beside {share:.1f}% of all weights"


def _shorten(chosen: list[str], everything: list[str]) -> list[str]:
    """Use last parts of names instead of hundreds of full ones, where this selects exactly the same modules."""
    result: dict[str, None] = {}
    for leaf in sorted_leaves(chosen):
        mine = {name for name in chosen if matches(name, leaf)}
        result.update(dict.fromkeys([leaf] if mine == {n for n in everything if matches(n, leaf)} else sorted(mine)))
    return list(result)


def _explain_missing(model: PreTrainedModel, missing: list[str], parts: _Parts) -> str:
    linears = parts.linears
    family = model.config.model_type
    attention = sorted_leaves(each.name for each in linears if each.is_in_layers and each.is_attention)
    others = sorted_leaves(each.name for each in linears if each.is_in_layers and not each.is_attention)
    groups = [f"{family}_attn ({', '.join(attention)})" if attention else ""]
    groups += [f"{family}_mlp ({', '.join(others)})" if others else ""]
    groups += [f"experts ({', '.join(_suffixes(parts.experts))})" if parts.experts else ""]
    groups += ["routers" if parts.router_linears or parts.router_weights else ""]
    names = ", ".join(f"'{name}'" for name in missing)
    return (
        f"lora_target: {names} matches nothing in {type(model).__name__}. It has the modules "
        f"{', '.join(sorted_leaves(each.name for each in linears))} and the groups all, all-linear, "
        f"{', '.join(group for group in groups if group)}."
    )
