"""Weights out of a GGUF file: the stored numbers, in a model that can be saved."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from tunesmith.errors import ModelError
from tunesmith.models.gguf.metadata import read_metadata
from tunesmith.models.gguf.weights import load_config, load_weights


def load(path):
    metadata = read_metadata(path)
    config = load_config(metadata)
    return load_weights(metadata, config=config, dtype=torch.float32, attn_implementation="sdpa")


def test_logits_equal_those_of_the_model_that_was_stored(write_gguf):
    path, original = write_gguf(weights=True)
    ids = torch.tensor([[5, 9, 200, 31, 4]])
    torch.testing.assert_close(load(path)(ids).logits, original(ids).logits, atol=1e-5, rtol=1e-5)


def test_loaded_model_saves_as_a_plain_one(write_gguf, tmp_path):
    path, _ = write_gguf(weights=True, eot=0, padding=0)
    model = load(path)
    model.save_pretrained(tmp_path / "plain")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "plain")
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert "quantization_config" not in again.config.to_dict()
    assert again.generation_config.eos_token_id == [2, 0]
    assert (again.generation_config.bos_token_id, again.generation_config.pad_token_id) == (1, 0)


def test_gguf_package_is_left_as_it_was(write_gguf):
    import gguf

    before = (gguf.GGUFReader, gguf.get_tensor_name_map)
    load(write_gguf(weights=True)[0])
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == before


def test_missing_tensor_is_refused_instead_of_filled_with_random_numbers(write_gguf):
    path, _ = write_gguf(weights=True, lost_tensor="model.layers.1.mlp.up_proj.weight")
    with pytest.raises(ModelError, match=r"lacks 1 of the model's weights.*layers\.1\.mlp\.up_proj"):
        load(path)
