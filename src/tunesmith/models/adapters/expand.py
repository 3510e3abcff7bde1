"""New blocks between the layers of a model, which change nothing until they are trained (LLaMA Pro).

Wu et al. 2024, "LLaMA Pro: Progressive LLaMA with Block Expansion", section 3: after every group of layers comes a copy
of the last one, whose two projections into the residual stream are zero, so that the copy passes its input on.
"""

from copy import deepcopy

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from tunesmith.errors import ModelError
from tunesmith.models.adapters.modules import find_layers, sorted_leaves
from tunesmith.models.probe import probe_logits

_INTO_RESIDUAL = frozenset(
    {"o_proj", "down_proj", "out_proj", "c_proj", "dense", "dense_4h_to_h", "fc2", "fc_out", "wo", "w2"}
)
"""What families call the last linear layer of attention and of the feed-forward part."""

_PER_LAYER = ("layer_types", "mlp_layer_types", "no_rope_layers")
"""Lists of configurations with an entry per layer."""

_TOLERANCE = 1e-5


def resolve_stride(setting: str, num_blocks: int, num_layers: int, name: str) -> int:
    """Return after how many layers each block of LLaMA Pro comes.

    Args:
        setting: That asks for the blocks.
        num_blocks: How many there are to be.
        num_layers: Of the model, without new ones for blocks that are to be made, with them for blocks that are there.
        name: Of the model, for the message.

    Raises:
        ModelError: They cannot be spread evenly.
    """
    if num_layers % num_blocks:
        possible = [str(n) for n in range(1, num_layers + 1) if num_layers % n == 0]
        raise ModelError(
            f"{setting}: {num_blocks} blocks of LLaMA Pro cannot be spread evenly over the {num_layers} layers of "
            f"{name}. Give one of {', '.join(possible)}."
        )
    return num_layers // num_blocks


def expand_blocks(model: PreTrainedModel, num_new: int) -> str:
    """Put new blocks into a model, spread evenly, and return a note for the plan.

    The model's configuration gets the new number of layers, so that what is saved loads as it is.

    Args:
        model: Changed in place. Its answers stay the same, which is checked.
        num_new: A divisor of the number of layers.

    Raises:
        ModelError: The blocks cannot be spread evenly, or would change the model's answers.
    """
    name, layers = find_layers(model)
    old = len(layers)
    stride = resolve_stride("llama_pro_new_blocks", num_new, old, type(model).__name__)
    expected = probe_logits(model)
    # Which old layer each place of the new stack is, or is a copy of.
    sources = [index for index in range(old) for _ in range(2 if (index + 1) % stride == 0 else 1)]
    blocks = [
        _new_block(layers[index]) if place and sources[place - 1] == index else layers[index]
        for place, index in enumerate(sources)
    ]
    for place, block in enumerate(blocks):
        _renumber(block, place)
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, nn.ModuleList(blocks))
    _describe(model, old, sources)
    difference = (probe_logits(model) - expected).abs().max().item()
    if difference > _TOLERANCE * max(1.0, expected.abs().max().item()):
        raise ModelError(
            f"llama_pro_new_blocks: a new block changes the answers of {type(model).__name__} (logits by "
            f"{difference:.2g}), so this family has no neutral copy of a layer. Use lora, or freeze without new blocks."
        )
    return f"{num_new} new blocks, one after every {stride} layers: {old} layers became {len(blocks)}"


def _new_block(layer: nn.Module) -> nn.Module:
    block = deepcopy(layer)
    found = [
        module
        for name, module in block.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and name.rpartition(".")[2] in _INTO_RESIDUAL
    ]
    fused = [value for name, value in block.named_parameters() if value.dim() == 3 and name.endswith("down_proj")]
    if not found:
        leaves = ", ".join(sorted_leaves(name for name, module in block.named_modules() if not list(module.children())))
        raise ModelError(
            f"llama_pro_new_blocks: a layer of this family has no output projection of a known name among {leaves}. "
            "Use lora, or freeze without new blocks."
        )
    with torch.no_grad():
        for weight in (*(value for module in found for value in module.parameters()), *fused):
            weight.zero_()
    return block


def _renumber(block: nn.Module, place: int) -> None:
    """Tell the parts of a layer where it stands: caches of keys and values go by it."""
    for module in block.modules():
        if "layer_idx" in vars(module):
            vars(module)["layer_idx"] = place


def _describe(model: PreTrainedModel, old: int, sources: list[int]) -> None:
    """Bring the configuration up to date, and prove that a model made from it has these very weights."""
    config = model.config.get_text_config()
    for key in _PER_LAYER:
        value = vars(config).get(key)
        if isinstance(value, list) and len(value) == old:
            setattr(config, key, [value[index] for index in sources])
    config.num_hidden_layers = len(sources)
    with torch.device("meta"):
        rebuilt = type(model)(model.config)
    shapes = [{name: value.shape for name, value in each.state_dict().items()} for each in (model, rebuilt)]
    if shapes[0] != shapes[1]:
        differing = min(name for name, _ in set(shapes[0].items()) ^ set(shapes[1].items()))
        raise ModelError(
            f"llama_pro_new_blocks: a deeper {type(model).__name__} would not load as it was saved ({differing} "
            "differs): its configuration names layers by number. Use lora, or freeze without new blocks."
        )
