"""Toy models on disk whose weights are stored in few bits, written by hand, each beside what its weights mean."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.tiny.runs import write_model

_BLOCK = 16
"""Side of the squares that share a scale in FP8 here; those of real models have 128."""

_MXFP4_GROUP = 32
_MXFP4_VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])

Weights = dict[str, Tensor]


def write_fp8_model(folder: Path) -> Weights:
    """Write a Llama in FP8 with scales by block; return what its weights mean."""
    write_model(folder)
    settings = {"activation_scheme": "dynamic", "weight_block_size": [_BLOCK, _BLOCK], "fmt": "e4m3"}
    return _rewrite(folder, {"quant_method": "fp8", **settings}, ("_proj.weight",), _to_fp8)


def write_int8_model(folder: Path) -> Weights:
    """Write a Llama in 8-bit integers of compressed-tensors with a scale by row; return what its weights mean."""
    write_model(folder)
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}
    settings = {"format": "int-quantized", "quantization_status": "compressed", "ignore": ["lm_head"]}
    method = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **settings}
    return _rewrite(folder, method, ("_proj.weight",), _to_int8)


def write_mxfp4_model(folder: Path) -> Weights:
    """Write a GPT-OSS whose experts are in MXFP4; return what its weights mean."""
    shape = {"hidden_size": 64, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}
    write_model(folder, "gpt_oss", tied=False, layer_types=["full_attention", "full_attention"], **shape)
    exact = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    method = {"quant_method": "mxfp4", "modules_to_not_convert": exact}
    return _rewrite(folder, method, ("experts.gate_up_proj", "experts.down_proj"), _to_mxfp4)


def _rewrite(
    folder: Path,
    method: Mapping[str, Any],
    endings: tuple[str, ...],
    compress: Callable[[str, Tensor], tuple[Weights, Tensor]],
) -> Weights:
    """Compress the weights with some endings in a model's folder, and say so in its configuration."""
    stored: Weights = {}
    meant: Weights = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        stored[name] = meant[name] = weight
        if name.endswith(endings):
            del stored[name]
            pieces, meant[name] = compress(name, weight)
            stored |= {key: value.contiguous() for key, value in pieces.items()}
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    file = folder / "config.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**content, "quantization_config": dict(method)}), encoding="utf-8")
    return meant


def _to_fp8(name: str, weight: Tensor) -> tuple[Weights, Tensor]:
    rows, columns = weight.shape
    blocks = weight.reshape(rows // _BLOCK, _BLOCK, columns // _BLOCK, _BLOCK)
    scales = blocks.abs().amax(dim=(1, 3)) / torch.finfo(torch.float8_e4m3fn).max
    rounded = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    meant = (rounded.float() * scales[:, None, :, None]).reshape(rows, columns)
    return {name: rounded.reshape(rows, columns), f"{name}_scale_inv": scales}, meant


def _to_int8(name: str, weight: Tensor) -> tuple[Weights, Tensor]:
    scales = weight.abs().amax(dim=1, keepdim=True) / 127
    rounded = (weight / scales).round().to(torch.int8)
    return {name: rounded, f"{name}_scale": scales}, rounded.float() * scales


def _to_mxfp4(name: str, weight: Tensor) -> tuple[Weights, Tensor]:
    """Compress weights of shape [experts, inputs, outputs]; stored are [experts, outputs, groups, 16 bytes]."""
    turned = weight.transpose(1, 2)
    groups = turned.reshape(*turned.shape[:2], -1, _MXFP4_GROUP)
    exponents = groups.abs().amax(dim=-1).clamp_min(1e-9).log2().floor() - 2  # the largest value is 6, below 2 to the 3
    scaled = groups / exponents.exp2()[..., None]
    codes = (scaled[..., None] - _MXFP4_VALUES).abs().argmin(dim=-1)
    meant = (_MXFP4_VALUES[codes] * exponents.exp2()[..., None]).reshape(turned.shape).transpose(1, 2)
    packed = (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)
    return {f"{name}_blocks": packed, f"{name}_scales": (exponents + 127).to(torch.uint8)}, meant.contiguous()
