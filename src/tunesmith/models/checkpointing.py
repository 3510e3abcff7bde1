"""Gradient checkpointing: whether a run needs it, and how it is switched on."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import transformers
from packaging.version import Version
from peft import PeftModel
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from tunesmith.config import RunConfig
from tunesmith.config.lean_optimizers import SPECIAL_OPTIMIZERS
from tunesmith.config.objective import PAIR_STAGES
from tunesmith.errors import ModelError
from tunesmith.models.adapters.modules import find_layers
from tunesmith.models.heads import find_base_model
from tunesmith.models.memory import Keeping, TrainingMemory, estimate_training_memory
from tunesmith.models.precision import Precision
from tunesmith.runtime.memory import available_memory_bytes
from tunesmith.runtime.ranks import current_ranks

logger = logging.getLogger(__name__)

# The rest is for what an estimate from shapes cannot know: fragmentation, other processes, the longest rows.
_USABLE_SHARE = 0.85


_KEPT = frozenset({
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
})  # fmt: skip
"""Results that `selective` keeps: those of matrix products and attention, which are most of the work of a layer."""


@dataclass(frozen=True, slots=True)
class CheckpointingChoice:
    """Whether activations are computed twice instead of kept."""

    enabled: bool
    memory: TrainingMemory
    """The estimate for this choice."""

    reason: str


def resolve_gradient_checkpointing(
    model: nn.Module, config: RunConfig, precision: Precision, most_tokens: int | None = None
) -> CheckpointingChoice:
    """Decide on gradient checkpointing; `auto` takes it only when a step would not fit into free memory otherwise.

    Args:
        model: On its device, with its trained part chosen.
        config: Of the run.
        precision: Of the run.
        most_tokens: Tokens of the largest micro-batch. Where its rows are not known it is taken to be full: batch size
            times `cutoff_len` tokens, twice that for pairs.
    """
    asked = False if config.model.disable_gradient_checkpointing else config.model.gradient_checkpointing
    base = find_base_model(model)
    tokens = most_tokens or _tokens_when_full(config)
    training = config.training

    def estimate(*, enabled: bool) -> TrainingMemory:
        return estimate_training_memory(
            model,
            tokens=tokens,
            compute_dtype=precision.compute_dtype,
            optimizer=next((key for key in SPECIAL_OPTIMIZERS if config.value(key)), training.optim),
            updates_in_backward=training.backward_updater is not None,
            keeping=Keeping(
                recomputes=enabled,
                every=config.model.checkpoint_every,
                products=asked == "selective",
                offloads=config.model.activation_offload,
            ),
        )

    if asked != "auto":
        how = "of everything but matrix products" if asked == "selective" else ""
        part = f" in every {config.model.checkpoint_every} layers" if config.model.checkpoint_every > 1 else ""
        reason = " ".join(f"set by gradient_checkpointing {how}{part}".split())
        return CheckpointingChoice(bool(asked), estimate(enabled=bool(asked)), reason)
    without = estimate(enabled=False)
    free = int(_USABLE_SHARE * measure_free_memory(base.device))
    enabled = without.beyond_weights > free
    reason = (
        f"a step of {tokens:,} tokens needs about {_gib(without.beyond_weights)} besides the weights, "
        f"{_gib(free)} can be used"
    )
    return CheckpointingChoice(enabled, estimate(enabled=True) if enabled else without, reason)


def _tokens_when_full(config: RunConfig) -> int:
    budget = config.loading.tokens_per_device_batch
    if budget is not None:
        return max(budget, config.data.cutoff_len)
    sequences = 2 if config.objective.stage in PAIR_STAGES else 1
    return config.training.batch_size * sequences * config.data.cutoff_len


def enable_gradient_checkpointing(
    model: nn.Module, *, use_reentrant: bool, every: int = 1, kept: Literal["nothing", "products"] = "nothing"
) -> None:
    """Switch gradient checkpointing on.

    Args:
        model: Of the run.
        use_reentrant: Which of PyTorch's implementations is used.
        every: Only each n-th layer is checkpointed, beginning with the first.
        kept: What of a checkpointed layer is kept all the same.

    Raises:
        ModelError: There are fewer layers than `every`.
    """
    base = find_base_model(model)
    kwargs: dict[str, Any] = {"use_reentrant": use_reentrant}
    if kept == "products":
        kwargs["context_fn"] = _keep_products()
    if Version(transformers.__version__) >= Version("5.24"):
        base.activation_checkpointing_enable(activation_checkpointing_kwargs=kwargs)
    else:  # renamed in between
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs)
    if use_reentrant and isinstance(model, PeftModel):
        base.enable_input_require_grads()  # re-entrant checkpoints ignore layers whose input needs no gradient
    if every > 1:
        _leave_out_layers(base, every)


def _keep_products() -> Callable[[], Any]:
    def choose(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if operation in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE

    return partial(create_selective_checkpoint_contexts, choose)


def _leave_out_layers(base: Any, every: int) -> None:
    _, layers = find_layers(base)
    if every > len(layers):
        raise ModelError(
            f"checkpoint_every: {every}, but the model has {len(layers)} layers. Set gradient_checkpointing: false to "
            "checkpoint none."
        )
    for index, layer in enumerate(layers):
        if index % every:
            vars(layer)["gradient_checkpointing"] = False


def measure_free_memory(device: torch.device) -> int:
    """Return the bytes that this process may still take on a device, shared fairly with its neighbours on the CPU."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        used, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
        share = torch.cuda.memory.get_per_process_memory_fraction(device)  # of the device, if this process has a limit
        # What the allocator holds in reserve is free for this process, though not for the driver.
        return max(0, min(free + reserved - used, int(share * total) - used))
    return available_memory_bytes() // current_ranks().local_world_size


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"
