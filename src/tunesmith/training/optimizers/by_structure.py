"""Optimizers that know what a parameter is for: Adam-mini (Zhang et al. 2024) and Muon (Jordan et al. 2024)."""

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from tunesmith.config.training import TrainingConfig
from tunesmith.errors import MissingDependencyError
from tunesmith.models.heads import find_base_model
from tunesmith.runtime.optional import require
from tunesmith.runtime.ranks import current_ranks
from tunesmith.training.optimizers.sets import Groups, OptimizerSet


def build_adam_mini(model: nn.Module, settings: TrainingConfig, groups: Groups) -> Optimizer:
    """Build Adam-mini, which groups parameters itself, by name; rates of the given groups are carried over."""
    package: Any = require("adam_mini", "adam-mini", "train with Adam-mini")
    config = find_base_model(model).config.get_text_config()
    heads = int(config.num_attention_heads)
    head_dim = int(config.to_dict().get("head_dim") or config.hidden_size // heads)
    optimizer = package.Adam_mini(
        named_parameters=[(name, value) for name, value in model.named_parameters() if value.requires_grad],
        lr=settings.learning_rate,
        betas=(settings.adam_beta1, settings.adam_beta2),
        eps=settings.adam_epsilon,
        weight_decay=settings.weight_decay,
        dim=int(config.hidden_size),
        n_heads=heads,
        n_kv_heads=int(config.to_dict().get("num_key_value_heads") or heads),
        verbose=False,
    )
    # The package takes heads to share the width; in some families they are wider.
    optimizer.head_numel = head_dim * int(config.hidden_size)
    optimizer.world_size = current_ranks().world_size  # it counts the GPUs of the machine, whoever uses them
    given = {id(value): group for group in groups for value in group["params"]}
    for group in optimizer.param_groups:
        same = given[id(group["params"][0])]
        group["lr"], group["weight_decay"] = same["lr"], same["weight_decay"]
    built: Optimizer = optimizer
    return built


def build_muon(model: nn.Module, settings: TrainingConfig, groups: Groups) -> Optimizer:
    """Build Muon for the matrices of the layers and AdamW for vectors, embeddings and the head.

    Raises:
        MissingDependencyError: PyTorch is too old to have Muon.
    """
    if "Muon" not in vars(torch.optim):
        raise MissingDependencyError(
            "use_muon: true needs PyTorch 2.9 or newer. Install it with: pip install 'torch>=2.9'"
        )
    base = find_base_model(model)
    ends = frozenset(
        id(value)
        for end in (base.get_input_embeddings(), base.get_output_embeddings())
        if end is not None
        for value in end.parameters()
    )
    names = {id(value): name for name, value in model.named_parameters()}
    matrices: Groups = []
    others: Groups = []
    for group in groups:
        inside = [each for each in group["params"] if _is_matrix_of_a_layer(names[id(each)], each, ends)]
        outside = [each for each in group["params"] if not _is_matrix_of_a_layer(names[id(each)], each, ends)]
        matrices += [{**group, "params": inside}] if inside else []
        others += [{**group, "params": outside}] if outside else []
    members: list[Optimizer] = []
    if matrices:
        # The root mean square of AdamW's steps, so that one learning rate fits both.
        members.append(torch.optim.Muon(matrices, lr=settings.learning_rate, adjust_lr_fn="match_rms_adamw"))
    if others:
        betas = (settings.adam_beta1, settings.adam_beta2)
        members.append(torch.optim.AdamW(others, lr=settings.learning_rate, betas=betas, eps=settings.adam_epsilon))
    return OptimizerSet(members)


def _is_matrix_of_a_layer(name: str, parameter: nn.Parameter, ends: frozenset[int]) -> bool:
    """Whether a parameter is a matrix inside the layers, rather than a vector, an embedding or the output head.

    Args:
        name: Of the parameter.
        parameter: Itself.
        ends: Identities of the weights of embedding and head.
    """
    return parameter.dim() == 2 and id(parameter) not in ends and "embed" not in name
