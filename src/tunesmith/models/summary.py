"""What of a model is trained, counted and laid out as a table."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import nn

from tunesmith.models.heads import find_base_model


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One row of the table."""

    group: str
    trainable: int
    total: int
    dtypes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParameterSummary:
    """Numbers of weights, shared ones counted once."""

    groups: tuple[GroupSummary, ...]

    @property
    def trainable(self) -> int:
        """Number of trained weights."""
        return sum(group.trainable for group in self.groups)

    @property
    def total(self) -> int:
        """Number of all weights, adapters included."""
        return sum(group.total for group in self.groups)

    def render_line(self) -> str:
        """Render one line for the log."""
        share = 100 * self.trainable / max(1, self.total)
        return f"trainable {self.trainable:,} of {self.total:,} parameters ({share:.4g}%)"

    def render(self) -> str:
        """Render the table, one row per module group."""
        rows = [("modules", "trainable", "total", "type")]
        rows += [(g.group, f"{g.trainable:,}", f"{g.total:,}", ", ".join(g.dtypes)) for g in self.groups]
        rows.append(("all", f"{self.trainable:,}", f"{self.total:,}", ""))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [
            f"{name:<{widths[0]}}  {trained:>{widths[1]}}  {total:>{widths[2]}}  {dtype}".rstrip()
            for name, trained, total, dtype in rows
        ]
        return "\n".join(lines)


def summarize_parameters(model: nn.Module) -> ParameterSummary:
    """Count the weights of a model by module group: embeddings, attention, mlp, norms, head, adapters."""
    counts: dict[str, list[int]] = {}
    dtypes: dict[str, set[str]] = {}
    head = find_base_model(model).get_output_embeddings()
    heads = {id(parameter) for parameter in head.parameters()} if head is not None else set()
    packed = _count_packed(model)
    for name, parameter in model.named_parameters():  # yields shared weights once
        group = _group_of(name, is_head=id(parameter) in heads)
        trainable, total = counts.setdefault(group, [0, 0])
        size = packed.get(id(parameter)) or _num_weights(parameter)
        counts[group] = [trainable + size * parameter.requires_grad, total + size]
        dtypes.setdefault(group, set()).add(_short(parameter.dtype))
    order = sorted(counts, key=_ORDER.index)
    return ParameterSummary(
        tuple(GroupSummary(group, counts[group][0], counts[group][1], tuple(sorted(dtypes[group]))) for group in order)
    )


def _count_packed(model: nn.Module) -> dict[int, int]:
    """Return the weights that HQQ's parameters stand for, by identity: only their layers know how many."""
    layers: list[Any] = [module for module in model.modules() if type(module).__name__ == "HQQLinear"]
    return {id(layer.W_q): prod(layer.meta["shape"]) for layer in layers}


def _num_weights(parameter: nn.Parameter) -> int:
    """Return the number of weights that a parameter stands for: bitsandbytes keeps several 4-bit ones in each entry."""
    if type(parameter).__name__ != "Params4bit":
        return parameter.numel()
    return 2 * parameter.element_size() * parameter.numel()


def list_parameter_status(model: nn.Module) -> Iterable[str]:
    """Yield one line per parameter: name, shape, type, device, and whether it is trained."""
    for name, parameter in model.named_parameters():
        state = "trained" if parameter.requires_grad else "frozen"
        yield f"{name} {tuple(parameter.shape)} {_short(parameter.dtype)} {parameter.device} {state}"


_ORDER = (
    *("embeddings", "attention", "mlp", "experts", "norms", "head", "other"),
    *("adapters on attention", "adapters on mlp", "adapters on experts", "other adapters", "trained copies"),
)


def _group_of(name: str, *, is_head: bool) -> str:
    parts = name.split(".")
    is_attention = any("attn" in part or "attention" in part for part in parts)
    is_mlp = any(part in {"mlp", "feed_forward", "ffn", "block_sparse_moe"} for part in parts)
    if "default" in parts and "modules_to_save" not in parts:  # peft's name of the adapter, whatever its method
        places = (("experts" in parts, "experts"), (is_attention, "attention"), (is_mlp, "mlp"))
        return next((f"adapters on {place}" for holds, place in places if holds), "other adapters")
    rules = (
        ("modules_to_save" in parts, "trained copies"),
        (any("embed" in part or part in {"wte", "wpe"} for part in parts), "embeddings"),
        (is_head, "head"),
        (any("norm" in part or part.startswith("ln_") for part in parts), "norms"),
        ("experts" in parts, "experts"),
        (is_attention, "attention"),
        (is_mlp, "mlp"),
    )
    return next((group for holds, group in rules if holds), "other")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
