"""First weights of a LoRA adapter that are computed from the model or from data.

peft computes them; here they are put in without changing what the model answers. What an adapter begins with is taken
out of the frozen weight by one subtraction, which is done again to the same bits when a run is resumed, see `wrapper`.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy

import torch
from peft import EvaConfig, LoraGAConfig
from peft.tuners.lora.eva import get_eva_state_dict
from peft.tuners.lora.layer import Linear as PeftLoraLinear
from peft.tuners.lora.layer import LoraLayer
from peft.utils.integrations import dequantize_module_weight
from torch import Tensor

from tunesmith.config import AdapterConfig
from tunesmith.errors import ModelError
from tunesmith.models.adapters.wrapper import ADAPTER, FirstFactors, KeptAdapter, take_out

logger = logging.getLogger(__name__)

Batch = Mapping[str, Tensor]

_NOT_LEARNT = -100
"""Label that PyTorch's cross entropy passes over, and every collator writes where nothing is learnt."""

FROM_DATA = frozenset({"eva", "lora_ga"})
"""Values of `init_lora_weights` that look at rows first."""


def needs_first_weights(model: torch.nn.Module) -> bool:
    """Whether the adapter of a model is a new one whose first weights are still to be computed."""
    return isinstance(model, KeptAdapter) and model.begins not in {"default", "gaussian", "orthogonal"}


def compute_first_weights(
    model: KeptAdapter,
    config: AdapterConfig,
    batches: Sequence[Batch],
    measure: Callable[[Batch], Tensor],
    read_exact: Callable[[str], Tensor] | None = None,
) -> str:
    """Give a new adapter its first weights and return a note for the log.

    Args:
        model: With its new adapter, on its device. Changed in place.
        config: `init_lora_weights` says how.
        batches: Rows to look at, on the model's device, the same in every process; PiSSA and OLoRA need none.
        measure: Runs the model on a batch and returns the mean loss.
        read_exact: Returns a weight of the base by name, before it was compressed; for LoftQ alone.

    Raises:
        ModelError: An adapter lies on something else than a linear layer, or has more ranks than there are directions
            to begin with, or the rows do not suffice.
    """
    _check_ranks(model, config.init_lora_weights)
    if config.init_lora_weights == "loftq":
        assert read_exact is not None, "LoftQ compares with exact weights"
        return _begin_in_loss_of_bits(model, read_exact)
    if config.init_lora_weights == "eva":
        return _begin_in_inputs(model, batches, measure)
    layers = _linear_layers(model, config.init_lora_weights)
    match config.init_lora_weights:
        case "pissa":
            kind = "pissa" if config.pissa_iter < 0 else f"pissa_niter_{config.pissa_iter}"
            _begin_in_weights(model, layers, lambda layer: layer.pissa_init(ADAPTER, kind))
        case "olora":
            _begin_in_weights(model, layers, lambda layer: layer.olora_init(ADAPTER))
        case "lora_ga":
            _measure_gradients(layers, batches, measure)
            settings = LoraGAConfig()
            _begin_in_weights(model, layers, lambda layer: layer.lora_ga_init(ADAPTER, settings))
    return f"init_lora_weights: {config.init_lora_weights} set the first weights of {len(layers)} adapters"


def _check_ranks(model: KeptAdapter, begin: str) -> None:
    """Refuse more ranks than a matrix has directions; LoRA-GA begins A and B with different ones."""
    for name, layer in model.named_modules():
        if not isinstance(layer, LoraLayer) or ADAPTER not in layer.lora_A:
            continue
        rank, side = layer.r[ADAPTER], min(layer.in_features, layer.out_features)
        limit = {"eva": layer.in_features, "lora_ga": side // 2}.get(begin, side)
        if rank > limit:
            leaf = name.rpartition(".")[2]
            raise ModelError(
                f"lora_rank: {rank} on {leaf}, and init_lora_weights: {begin} has {limit} directions there to begin "
                f"with ({layer.in_features} inputs, {layer.out_features} outputs). Set lora_rank to {limit} or less, "
                f"or lora_rank_pattern: {{{leaf}: {limit}}}, or init_lora_weights: default."
            )


def _linear_layers(model: KeptAdapter, begin: str) -> dict[str, PeftLoraLinear]:
    layers = {name: module for name, module in model.named_modules() if isinstance(module, PeftLoraLinear)}
    others = [
        name.partition(f".lora_embedding_A.{ADAPTER}")[0]
        for name, _ in model.named_parameters()
        if "lora_embedding_A" in name
    ]
    if others:
        raise ModelError(
            f"init_lora_weights: {begin} is for linear layers, and {others[0]} is none. Take it out of lora_target, or "
            "set init_lora_weights: default."
        )
    return layers


def _begin_in_weights(
    model: KeptAdapter, layers: Mapping[str, PeftLoraLinear], begin: Callable[[PeftLoraLinear], None]
) -> None:
    """Let peft compute factors, and take exactly these out of the weight as it was."""
    first: dict[str, FirstFactors] = {}
    for name, layer in layers.items():
        base = layer.get_base_layer()
        original = base.weight.data.clone()
        down, up = layer.lora_A[ADAPTER].weight, layer.lora_B[ADAPTER].weight
        dtype = down.dtype
        begin(layer)
        # Copies: the parameters themselves are trained from here on.
        factors = FirstFactors(*(value.detach().float().cpu().clone().contiguous() for value in (down, up)))
        down.data, up.data = down.data.to(dtype).contiguous(), up.data.to(dtype).contiguous()
        base.weight.data = original
        take_out(layer, factors)
        first[name] = factors
    model.first_factors = first


def _measure_gradients(
    layers: Mapping[str, PeftLoraLinear], batches: Sequence[Batch], measure: Callable[[Batch], Tensor]
) -> None:
    """Leave the mean gradient of each frozen weight where peft's LoRA-GA looks for it."""
    bases = [layer.get_base_layer() for layer in layers.values()]
    for base in bases:
        base.weight.requires_grad_(True)
    try:
        for batch in batches:
            (measure(batch) / len(batches)).backward()  # type: ignore[no-untyped-call]
        for base in bases:
            base._peft_loraga_grad = base.weight.grad
    finally:
        for layer in layers.values():
            layer.zero_grad()
        for base in bases:
            base.weight.grad = None
            base.weight.requires_grad_(False)


def _begin_in_inputs(model: KeptAdapter, batches: Sequence[Batch], measure: Callable[[Batch], Tensor]) -> str:
    """Set A to the main directions of each layer's inputs (EVA), be its weight compressed or not.

    Ranks stay as they are set.
    """
    _linear_layers(model, "eva")
    layers = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer) and module.lora_A}
    largest = max(layer.r[ADAPTER] for layer in layers.values())
    # peft goes round the batches until the directions settle; batches with fewer tokens than directions never add any.
    usable = [dict(batch) for batch in batches if int((batch["labels"] != _NOT_LEARNT).sum()) >= largest]
    if not usable:
        raise ModelError(
            f"init_lora_weights: eva needs batches with at least {largest} learnt tokens, as many as the largest rank, "
            "and the first ones have fewer. Raise per_device_train_batch_size, or lower lora_rank."
        )
    settings = copy(model.lora_config)
    settings.init_lora_weights, settings.eva_config = "eva", EvaConfig(rho=1.0)
    with torch.no_grad(), _own_config(model, settings):
        directions = get_eva_state_dict(
            model,
            usable,
            peft_config=settings,
            forward_fn=lambda _, batch: measure(batch),
            adapter_name=ADAPTER,
            gather_distributed_inputs=False,
            show_progress_bar=False,
        )
        for name, down in directions.items():
            weight = layers[name].lora_A[ADAPTER].weight
            weight.copy_(down.to(weight.dtype))
    return f"init_lora_weights: eva set the first weights of {len(layers)} adapters"


@torch.no_grad()
def _begin_in_loss_of_bits(model: KeptAdapter, read_exact: Callable[[str], Tensor]) -> str:
    """Let each adapter make up for what its compressed weight lost, as far as its rank goes (LoftQ, Li et al. 2023).

    One iteration of the paper's algorithm 1, as the weights are compressed already. peft has the same for accelerators
    only, and leaves the scaling of the adapter out.
    """
    first: dict[str, FirstFactors] = {}
    for name, layer in model.named_modules():
        if not isinstance(layer, LoraLayer) or ADAPTER not in layer.lora_A:
            continue
        down, up = layer.lora_A[ADAPTER].weight, layer.lora_B[ADAPTER].weight
        compressed = dequantize_module_weight(layer.get_base_layer())
        exact = read_exact(f"{name.removeprefix('base_model.model.')}.weight").to(compressed.device)
        left, values, right = torch.linalg.svd(exact.float() - compressed.float(), full_matrices=False)
        rank = down.shape[0]
        roots = (values[:rank] / layer.scaling[ADAPTER]).sqrt()
        down.copy_(roots[:, None] * right[:rank])
        up.copy_(left[:, :rank] * roots)
        first[name] = FirstFactors(*(value.detach().float().cpu().clone() for value in (down, up)))
    model.first_factors = first
    return f"init_lora_weights: loftq set the first weights of {len(first)} adapters"


@contextmanager
def _own_config(model: KeptAdapter, settings: object) -> Iterator[None]:
    before, model.peft_config[ADAPTER] = model.peft_config[ADAPTER], settings
    try:
        yield
    finally:
        model.peft_config[ADAPTER] = before
