"""BAdam (Luo et al. 2024): one block of the weights after the other is trained with Adam."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from tunesmith.config.training import TrainingConfig
from tunesmith.errors import ModelError
from tunesmith.models.adapters.modules import find_layers
from tunesmith.models.heads import find_base_model
from tunesmith.models.patches.quiet_badam import log_instead_of_printing
from tunesmith.runtime.optional import require
from tunesmith.runtime.ranks import current_ranks
from tunesmith.training.optimizers.sets import Groups

_NEVER = 2**31
"""Steps after which a block changes that is never to change."""


def build_badam(model: nn.Module, settings: TrainingConfig, groups: Groups) -> Optimizer:
    """Build the optimizer over all trained parameters.

    Raises:
        ModelError: There are several processes, among which the package does not agree on a block; or it does not find
            the layers of this family, or the first block that is asked for.
    """
    package: Any = require("badam", "badam", "train with BAdam")
    log_instead_of_printing()
    if current_ranks().world_size > 1:
        raise ModelError("use_badam: true works in one process only. Start one, or use use_galore or use_apollo.")
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    betas = (settings.adam_beta1, settings.adam_beta2)
    interval = _NEVER if settings.badam_switch_interval == -1 else settings.badam_switch_interval
    if settings.badam_mode == "ratio":
        is_tied = find_base_model(model).config.get_text_config().tie_word_embeddings
        ratio: Optimizer = package.BlockOptimizerRatio(
            param_groups=groups,
            named_parameters_list=named,
            update_ratio=settings.badam_update_ratio,
            mask_mode=settings.badam_mask_mode,
            switch_every=interval,
            verbose=settings.badam_verbose,
            lr=settings.learning_rate,
            betas=betas,
            eps=settings.adam_epsilon,
            include_lm_head=is_tied,  # there is none to freeze beside the embedding, which is frozen
        )
        return ratio
    _check_blocks(model, settings.badam_start_block)
    adam = torch.optim.AdamW(
        groups,
        lr=settings.learning_rate,
        betas=betas,
        eps=settings.adam_epsilon,
        weight_decay=settings.weight_decay,  # the package makes groups of its own from the defaults
    )
    layers: Optimizer = package.BlockOptimizer(
        base_optimizer=adam,
        named_parameters_list=named,
        block_prefix_list=None,
        switch_block_every=interval,
        start_block=settings.badam_start_block,
        switch_mode=settings.badam_switch_mode,
        verbose=settings.badam_verbose,
    )
    return layers


def _check_blocks(model: nn.Module, start: int | None) -> None:
    """Refuse what the package would fail on: it finds layers by their name."""
    name, layers = find_layers(find_base_model(model))
    if name.rpartition(".")[2] != "layers":
        raise ModelError(
            f"use_badam: the package looks for layers by the name `layers`, and this family calls them {name}. Set "
            "badam_mode: ratio, or use use_galore or use_apollo."
        )
    if start is not None and start >= len(layers):
        raise ModelError(f"badam_start_block: {start}, but the blocks are 0 to {len(layers) - 1}. Give one of them.")


def shorten_sparse(parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
    """Shorten sparse gradients together to a length, as PyTorch's clipping does with dense ones; return what it was.

    Args:
        parameters: Those without a gradient are left out.
        max_norm: Longest allowed; infinite to measure alone.
    """
    gradients = [each.grad for each in parameters if each.grad is not None]
    squares = [
        (gradient.coalesce().values() if gradient.is_sparse else gradient).float().square().sum()
        for gradient in gradients
    ]
    norm = torch.stack(squares).sum().sqrt()
    if norm > max_norm:
        for gradient in gradients:
            gradient.mul_(max_norm / (norm + 1e-6))
    return norm
