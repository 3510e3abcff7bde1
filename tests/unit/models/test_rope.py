"""Stretching rotary positions."""

from dataclasses import replace

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


def test_a_mapping_gives_the_factor_and_details_itself():
    config = tiny_model("llama").config
    note = apply_rope_scaling(config, {"rope_type": "yarn", "factor": 4, "beta_fast": 16}, 100)
    assert note == "rope_scaling: yarn, 512 -> 2048 tokens (factor 4)"
    assert config.rope_parameters["beta_fast"] == 16
    assert config.rope_parameters["original_max_position_embeddings"] == 512
    assert config.max_position_embeddings == 2048
    assert AutoModelForCausalLM.from_config(config)(torch.arange(600)[None] % 400).logits.isfinite().all()


def test_longrope_takes_factors_for_each_pair_of_dimensions():
    config = tiny_model("llama").config  # heads of 8 dimensions
    settings = {"rope_type": "longrope", "factor": 2, "short_factor": [1.0] * 4, "long_factor": [1.0, 1.5, 2.0, 2.5]}
    apply_rope_scaling(config, settings, 1024)
    model = AutoModelForCausalLM.from_config(config)
    assert model(torch.arange(700)[None] % 400).logits.isfinite().all()


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ({"rope_type": "ntk"}, "rope_type is 'ntk'; allowed is one of linear, dynamic, yarn"),
        ({"factor": 2}, "rope_type is ''; allowed is one of"),
        ({"rope_type": "linear", "beta_fast": 3}, "linear does not take beta_fast; it takes factor"),
        ("longrope", "longrope needs short_factor and long_factor"),
        ({"rope_type": "yarn", "factor": 0.5}, "factor is 0.5; allowed is a number of 1 or more"),
        ({"rope_type": "yarn", "factor": "two"}, "factor is two; allowed is"),
    ],
)
def test_what_a_kind_does_not_take_is_refused(scaling, words):
    with pytest.raises(ModelError, match=words):
        apply_rope_scaling(tiny_model("llama").config, scaling, 1024)


def test_an_adapter_brings_the_positions_it_was_trained_under(tmp_path, caplog):
    from tests.tiny.runs import tiny_run, write_dataset, write_model
    from tunesmith.config import load_config
    from tunesmith.models import load_model, load_tokenizer
    from tunesmith.training.run import run_training

    write_model(tmp_path / "model", max_position_embeddings=64)
    write_dataset(tmp_path / "data", num_rows=4)
    trained = run_training(
        tiny_run(tmp_path, max_steps=1, num_train_epochs=None, rope_scaling="yarn", save_strategy="no")
    ).trainer.model
    places = {"model_name_or_path": str(tmp_path / "model"), "adapter_name_or_path": str(tmp_path / "out")}
    config = load_config({**places, "use_cpu": True, "infer_dtype": "float32"}, purpose="generate", environ={})
    loaded = load_model(config, load_tokenizer(config.model), is_trainable=False)
    assert loaded.model.config.rope_parameters["factor"] == 2.0
    assert any(note.startswith("rotary positions as the adapter was trained: up to 128") for note in loaded.notes)
    ids = torch.arange(3, 103)[None]
    with torch.no_grad():
        expected = trained.eval()(input_ids=ids).logits
        torch.testing.assert_close(loaded.model(input_ids=ids).logits, expected, atol=1e-4, rtol=1e-4)

    caplog.set_level("INFO", logger="tunesmith")
    asking = replace(config, model=replace(config.model, rope_scaling="linear"))
    again = load_model(asking, load_tokenizer(config.model), is_trainable=False).model
    assert again.config.rope_parameters["rope_type"] == "yarn"
    assert "rope_scaling is not used: rotary positions as the adapter was trained" in caplog.text

    goes_on = {"adapter_name_or_path": str(tmp_path / "out"), "output_dir": str(tmp_path / "second")}
    settings = {"max_steps": 1, "num_train_epochs": None, "save_strategy": "no", **goes_on}
    again = run_training(tiny_run(tmp_path, rope_scaling="yarn", **settings)).trainer.model
    assert again.get_base_model().config.rope_parameters["factor"] == 2.0
    settings["output_dir"] = str(tmp_path / "third")
    with pytest.raises(ModelError, match=r"rope_scaling: would give 256 positions .* was trained under 128"):
        run_training(tiny_run(tmp_path, rope_scaling={"rope_type": "yarn", "factor": 4}, **settings))
