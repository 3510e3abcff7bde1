"""Stretching rotary positions."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.tiny.models import tiny_model
from tunesmith.errors import ModelError
from tunesmith.models.rope import apply_rope_scaling


@pytest.mark.parametrize(
    ("scaling", "length", "more"),
    [
        ("linear", 1536, {}),
        ("dynamic", 512, {}),  # measures against the original length
        ("yarn", 1536, {"original_max_position_embeddings": 512}),
        (
            "llama3",
            1536,
            {"original_max_position_embeddings": 512, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        ),
    ],
)
def test_factor_makes_room_for_the_longest_row(scaling, length, more, tmp_path):
    config = tiny_model("llama").config  # 512 tokens
    note = apply_rope_scaling(config, scaling, 1300)
    assert note == f"rope_scaling: {scaling}, 512 -> 1536 tokens (factor 3)"
    found = dict(config.rope_parameters)
    assert found.pop("rope_theta")
    assert found == {"rope_type": scaling, "factor": 3.0, **more}
    assert config.max_position_embeddings == length
    assert isinstance(config.max_position_embeddings, int)
    model = AutoModelForCausalLM.from_config(config)
    assert model(torch.arange(1200)[None] % 400).logits.isfinite().all()
    model.save_pretrained(tmp_path)  # a float where the configuration wants an integer fails here
    assert AutoModelForCausalLM.from_pretrained(tmp_path).config.rope_parameters["rope_type"] == scaling


def test_only_full_attention_layers_are_stretched():
    config = tiny_model("gemma3_text").config
    before = config.rope_parameters["sliding_attention"]
    apply_rope_scaling(config, "linear", 1024)
    assert config.rope_parameters["full_attention"]["factor"] == 2.0
    assert config.rope_parameters["sliding_attention"] == before


def test_scaling_without_effect_is_refused():
    with pytest.raises(ModelError, match=r"no effect: the model takes 512 tokens and cutoff_len is 512"):
        apply_rope_scaling(tiny_model("llama").config, "yarn", 512)


def test_model_that_is_scaled_already_is_refused():
    config = tiny_model("llama").config
    apply_rope_scaling(config, "linear", 1024)
    with pytest.raises(ModelError, match=r"already scaled \(linear, factor 2.0\)"):
        apply_rope_scaling(config, "yarn", 4096)


def test_model_without_rotary_positions_is_refused():
    with pytest.raises(ModelError, match="gpt2 has no rotary positions"):
        apply_rope_scaling(tiny_model("gpt2", n_embd=32, n_head=4, n_layer=1).config, "linear", 4096)
