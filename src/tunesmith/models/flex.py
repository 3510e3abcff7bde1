"""PyTorch's flex attention for rows that hold several samples, or prompts that several completions share.

One fused kernel goes over the whole row and leaves out what its block mask marks as unseen. Unlike `segments`, which
puts every branch behind its prompt again, it computes a shared prompt once in attention, too. The kernel is compiled
for the GPU when it is first used; on a CPU there is none that could be trained with.

Importing this module registers the implementation `tunesmith_flex` with transformers.
"""

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.masking_utils import flex_attention_mask
from transformers.utils import is_torch_flex_attn_available

from tunesmith.errors import ModelError
from tunesmith.models.block_masks import BLOCK, build_block_mask
from tunesmith.models.branches import BranchLengths, check_branches
from tunesmith.models.precision import Precision
from tunesmith.models.segments import Segments, find_segments

FLEX = "tunesmith_flex"
"""Name of this attention in `attn_implementation`."""

_LEAST_CAPABILITY = 8
_LEAST_HEAD_WIDTH = 16
"""Narrower products than this do not fit the matrix units that the kernel is written for."""


def find_flex_obstacle(
    device: torch.device, model_config: PreTrainedConfig | None = None, precision: Precision | None = None
) -> str:
    """Return why this attention cannot train a model on a device, as the rest of "flex attention ...", or nothing.

    Where nothing speaks against it the kernel is compiled and run once, forwards and backwards, with heads like those
    of the model: whether compiling works is a matter of driver, compiler and versions, and is better known now.

    Args:
        device: Where the model will run.
        model_config: The model's transformers configuration.
        precision: Of the run.
    """
    if not is_torch_flex_attn_available():
        return "is not in this PyTorch: update torch"
    if device.type != "cuda":
        return f"has no backward pass on {device.type.upper()}, so nothing can be trained with it here"
    major, minor = torch.cuda.get_device_capability(device)
    if major < _LEAST_CAPABILITY:
        return f"needs an Ampere GPU or newer, and this one has compute capability {major}.{minor}"
    if find_spec("triton") is None:
        return "needs the package triton, which is not installed"
    num_heads, num_keys, width = (4, 4, 64) if model_config is None else _heads(model_config)
    if width < _LEAST_HEAD_WIDTH:
        return f"needs heads of {_LEAST_HEAD_WIDTH} or more, and those of this model have a width of {width}"
    dtype = torch.bfloat16 if precision is None else precision.compute_dtype
    return _find_failure(device, num_heads, num_keys, width, dtype)


def _heads(model_config: PreTrainedConfig) -> tuple[int, int, int]:
    """Return the numbers of heads for queries and for keys, and the width of one."""
    settings = model_config.get_text_config().to_dict()
    num_heads = settings["num_attention_heads"]
    return (
        num_heads,
        settings.get("num_key_value_heads") or num_heads,
        settings.get("head_dim") or settings["hidden_size"] // num_heads,
    )


@cache
def _find_failure(device: torch.device, num_heads: int, num_keys: int, width: int, dtype: torch.dtype) -> str:
    query, key, value = (
        torch.zeros((1, heads, BLOCK, width), device=device, dtype=dtype, requires_grad=True)
        for heads in (num_heads, num_keys, num_keys)
    )
    mask = build_block_mask([((40, 40, 40),)], device=device)
    try:
        with torch.enable_grad():
            flex_attention_forward(nn.Identity(), query, key, value, mask)[0].sum().backward()
    except RuntimeError as error:  # what dynamo, inductor and Triton raise when they cannot go on
        first = str(error).strip().splitlines()
        return f"does not run on this GPU ({first[0] if first else type(error).__name__})"
    return ""


def build_flex_mask(**arguments: Any) -> Any:
    """Build the mask argument of the layers, as transformers' `AttentionMaskInterface` asks for it.

    Returns:
        `Segments` for whole causal sequences, from which the layers make a block mask; otherwise (padding, decoding)
        what transformers builds for its own flex attention.
    """
    segments = find_segments(**arguments)
    return flex_attention_mask(**arguments) if segments is None else segments


def attend_flexibly(  # noqa: PLR0913, PLR0917 - the signature is transformers'
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend within each sample, or within each prompt and branch, as transformers' `AttentionInterface` asks for it.

    Args:
        module: The attention layer.
        query: Shape [batch, heads, tokens, width].
        key: Shape [batch, key-value heads, tokens, width].
        value: Shape like `key`.
        attention_mask: What `build_flex_mask` made for this layer.
        dropout: Probability; must be 0.
        scaling: Factor on the scores; 1/sqrt(width) by default.
        softcap: Bound on the scores (Gemma 2).
        kwargs: What else the model passes down, as for `segments_attention`.

    Returns:
        The attended values, shape [batch, tokens, heads, width], and no weights.

    Raises:
        ModelError: The model drops attention weights, which the kernel cannot.
        ValueError: `branch_lengths` is given for a batch that it does not describe.
    """
    if dropout:
        raise ModelError(
            f"flash_attn: flex attention cannot drop weights, and the model has an attention_dropout of {dropout}. Set "
            "attention_dropout to 0 in its config.json, or flash_attn: auto."
        )
    branch_lengths: BranchLengths | None = kwargs.get("branch_lengths")
    if branch_lengths is not None:
        check_branches(branch_lengths, query, is_causal=isinstance(attention_mask, Segments))
    num_tokens, mask = query.shape[2], attention_mask
    if isinstance(attention_mask, Segments):
        mask = _block_mask_of(attention_mask, branch_lengths, query.device, kwargs)
        filler = (0, 0, 0, mask.shape[-1] - num_tokens)
        query, key, value = (pad(each, filler) for each in (query, key, value))
    output, _ = flex_attention_forward(
        module,
        query.to(value.dtype),  # autocast brings only the products of PyTorch's own attention to one type
        key.to(value.dtype),
        value,
        mask,
        scaling=scaling,
        softcap=softcap,
        s_aux=kwargs.get("s_aux"),
    )
    return output[:, :num_tokens], None


def _block_mask_of(
    segments: Segments, branch_lengths: BranchLengths | None, device: torch.device, kwargs: dict[str, Any]
) -> Any:
    """Return the block mask of a layer, made once for all layers with the same window."""
    if branch_lengths is not None:
        groups = tuple(tuple(group) for group in branch_lengths)
        return segments.remember(groups, lambda: build_block_mask([groups], window=segments.window, device=device))
    samples = segments.checked_against(kwargs.get("cu_seq_lens_q"), kwargs.get("position_ids"))
    rows = [tuple((length,) for length in row) for row in samples.lengths]
    return samples.remember("samples", lambda: build_block_mask(rows, window=samples.window, device=device))


AttentionInterface.register(FLEX, attend_flexibly)
AttentionMaskInterface.register(FLEX, build_flex_mask)
