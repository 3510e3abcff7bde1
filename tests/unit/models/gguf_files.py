"""A GGUF file written in the test: a byte-level vocabulary and a two-layer Llama."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from tests.tiny.models import tiny_model
from tests.tiny.tokenizers import byte_level_tokenizer

CONTROL, NORMAL, USER_DEFINED = 3, 1, 4


def write_vocabulary(writer: gguf.GGUFWriter, *, pre: str = "smollm", kind: str = "gpt2", **ids: int) -> None:
    tokenizer = byte_level_tokenizer()
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = [token for token, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    types = [CONTROL if token in {*tokenizer.all_special_tokens, "<|im_start|>"} else NORMAL for token in tokens]
    types[-1] = USER_DEFINED
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    for name, value in {"bos": 1, "eos": 2, "unknown": 0, "padding": 2, **ids}.items():
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", value)
    writer.add_chat_template("{% for message in messages %}{{ message.content }}{% endfor %}")


def write_weights(writer: gguf.GGUFWriter, lost_tensor: str) -> torch.nn.Module:
    """Write a toy Llama the way llama.cpp stores one: rotary halves of query and key interleaved."""
    model = tiny_model("llama", layers=2)
    config = model.config
    writer.add_block_count(2)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(8)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    for name, value in model.state_dict().items():
        if name in {"lm_head.weight", lost_tensor}:
            continue
        array = value.numpy()
        for part, heads in (("q_proj", 4), ("k_proj", 2)):
            if part in name:
                array = array.reshape(heads, 2, 4, 32).swapaxes(1, 2).reshape(array.shape)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), np.ascontiguousarray(array))
    return model


@pytest.fixture
def write_gguf(tmp_path):
    """Write `toy.gguf` into a folder of its own; returns the path and, with weights, the model that was stored."""

    def write(*, weights: bool = False, drop: str | None = None, lost_tensor: str = "", **vocabulary: object):
        folder = tmp_path / "gguf"
        folder.mkdir(exist_ok=True)
        path: Path = folder / "toy.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_context_length(128)
        write_vocabulary(writer, **vocabulary)
        model = write_weights(writer, lost_tensor) if weights else None
        if drop:
            for shard in writer.kv_data:
                shard.pop(drop)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path, model

    return write
