"""Several adapters become one model: exactly by `cat`, by peft's other ways, and not where parts would be lost."""

import json
import logging

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from safetensors.torch import load_file

from tests.tiny.models import tiny_model
from tests.unit.export.test_merge import base as base  # noqa: PLC0414 - a fixture
from tests.unit.export.test_merge import configure, save_adapter
from tunesmith.config import load_config
from tunesmith.errors import ConfigError, ModelError
from tunesmith.export.merge import export_model

WEIGHT = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture
def adapters(base, tmp_path):
    return [save_adapter(tmp_path / name, base, seed=seed) for name, seed in (("first", 1), ("second", 2))]


def weights(folder) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def export(base, out, adapters, **settings):
    return export_model(configure(base, out, *adapters, **settings))


def product(adapter) -> torch.Tensor:
    state = load_file(adapter / "adapter_model.safetensors")
    name = f"base_model.model.{WEIGHT.removesuffix('.weight')}"
    scaling = 8 / 4  # peft's default alpha over the rank
    return scaling * state[f"{name}.lora_B.weight"] @ state[f"{name}.lora_A.weight"]


def test_cat_is_the_weighted_sum(base, adapters, tmp_path):
    report = export(base, tmp_path / "out", adapters, adapter_combination="cat", adapter_weights="0.7,-0.3")
    expected = load_file(base / "model.safetensors")[WEIGHT] + 0.7 * product(adapters[0]) - 0.3 * product(adapters[1])
    torch.testing.assert_close(weights(tmp_path / "out")[WEIGHT], expected, atol=1e-5, rtol=1e-5)
    assert report.merge_difference < 1e-5


def test_cat_with_weights_of_one_is_merging_in_turn(base, adapters, tmp_path):
    export(base, tmp_path / "cat", adapters, adapter_combination="cat")
    export(base, tmp_path / "turn", adapters)
    torch.testing.assert_close(weights(tmp_path / "cat"), weights(tmp_path / "turn"), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["linear", "svd", "ties", "ties_svd", "dare_linear", "dare_ties", "magnitude_prune"])
def test_every_way_gives_a_model_that_is_equal_merged_and_apart(base, adapters, tmp_path, kind):
    report = export(base, tmp_path / "out", adapters, adapter_combination=kind)
    assert report.merge_difference < 1e-4
    changed = weights(tmp_path / "out")[WEIGHT] - load_file(base / "model.safetensors")[WEIGHT]
    assert changed.abs().max() > 1e-3
    assert not torch.allclose(changed, product(adapters[0]) + product(adapters[1]), atol=1e-3)


def test_what_dare_leaves_out_is_decided_by_the_seed(base, adapters, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        export(base, tmp_path / name, adapters, adapter_combination="dare_linear", seed=seed)
    a, b, c = (weights(tmp_path / name)[WEIGHT] for name in "abc")
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_adapters_of_different_ranks_are_refused_where_their_factors_would_be_added(base, adapters, tmp_path):
    model = get_peft_model(tiny_model(), LoraConfig(r=2, target_modules=["q_proj", "down_proj"]))
    model.save_pretrained(tmp_path / "small")
    both = [adapters[0], tmp_path / "small"]
    with pytest.raises(ModelError, match=r"adapter_combination: ties is not possible.*can be put together by svd"):
        export(base, tmp_path / "out", both, adapter_combination="ties")
    export(base, tmp_path / "out", both, adapter_combination="svd")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"use_dora": True}, "it has DoRA's magnitudes"), ({"modules_to_save": ["norm"]}, "it holds whole modules")],
)
def test_what_a_combination_would_lose_is_refused(base, adapters, tmp_path, settings, reason):
    model = get_peft_model(tiny_model(), LoraConfig(r=4, target_modules=["q_proj"], **settings))
    model.save_pretrained(tmp_path / "other")
    with pytest.raises(ModelError, match=f"other cannot be combined with others: {reason}"):
        export(base, tmp_path / "out", [adapters[0], tmp_path / "other"], adapter_combination="cat")


def test_a_learnt_prompt_cannot_be_merged_and_says_so_before_anything_is_loaded(base, tmp_path):
    prompt = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    get_peft_model(tiny_model(), prompt).save_pretrained(tmp_path / "prompt")
    with pytest.raises(ModelError, match=r"prompt cannot be merged: .*Serve it unmerged, on its base model"):
        export(base, tmp_path / "out", [tmp_path / "prompt"])
    assert not (tmp_path / "out").exists()


def test_an_adapter_of_other_weights_is_noticed(base, adapters, tmp_path, caplog):
    from tunesmith.models.adapters.record import BaseRecord

    BaseRecord.of(tiny_model(seed=5), "org/other", 420).save(adapters[0])
    with caplog.at_level(logging.WARNING):
        export(base, tmp_path / "out", adapters[:1])
    assert "was trained beside other weights (org/other) than those it is put on" in caplog.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"adapter_combination": "ties"}, "puts several adapters together, and `adapter_name_or_path` names 1"),
        ({"adapter_weights": "1"}, "`adapter_weights` has no effect with `adapter_combination: in_turn`"),
        ({"adapter_combination": "cat", "adapter_weights": "1,2,3", "adapter_name_or_path": "a,b"}, "3 values for 2"),
        ({"adapter_combination": "cat", "adapter_density": 0.2, "adapter_name_or_path": "a,b"}, "leaves nothing out"),
    ],
)
def test_settings_of_combinations_that_mean_nothing_are_refused(settings, message, tmp_path):
    values = {"model_name_or_path": "org/a", "export_dir": str(tmp_path), "adapter_name_or_path": "org/b", **settings}
    with pytest.raises(ConfigError, match=message):
        load_config(values, purpose="export", environ={})


def test_the_card_tells_what_the_model_is_made_of_and_no_paths(base, adapters, tmp_path):
    export(base, tmp_path / "out", adapters, adapter_combination="cat", template="chatml")
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: text-generation\n")
    assert "- Base model: base\n- Adapters, combined by cat and merged: first, second\n" in card
    assert "weights in float32\n- Chat template: chatml, saved with the tokenizer\n- Answers end at `<|im_" in card
    assert str(tmp_path) not in card
    assert "base_model" not in card
    written = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert 2 in (ends if isinstance(ends := written["eos_token_id"], list) else [ends])
