import json
import shutil

import pytest
import torch
from peft import AutoPeftModelForSequenceClassification
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from tests.tiny.models import FAMILIES, tiny_model
from tests.unit.models.reward.conftest import IDS, MASK
from tunesmith.errors import ModelError
from tunesmith.models import load_model, load_tokenizer
from tunesmith.models.heads import find_base_model

WITHOUT_CLASSIFIER = ("cohere", "granite")  # of the toy families, those that transformers has no classifier for


def change_everything_trained(model):
    """Stand in for a training: every trained weight moves."""
    torch.manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.05)


def value_head(folder, *, kind="safetensors", bias=0.0, hidden=32, name="v_head.summary.weight"):
    """Write what LLaMA-Factory puts beside a model or an adapter."""
    torch.manual_seed(3)
    tensors = {name: torch.randn(1, hidden), "v_head.summary.bias": torch.tensor([bias])}
    if kind == "safetensors":
        save_file(tensors, folder / "value_head.safetensors")
    else:
        torch.save(tensors, folder / "value_head.bin")
    return tensors


@pytest.mark.parametrize("tuning", ["lora", "freeze", "full"])
def test_scores_after_saving_and_loading_are_those_before(load_reward, scores_of, model_folder, tmp_path, tuning):
    settings = {"finetuning_type": tuning, "freeze_trainable_layers": 1} if tuning == "freeze" else {}
    loaded = load_reward(model_name_or_path=str(model_folder), **{"finetuning_type": tuning, **settings})
    assert f"the score head is new: {model_folder} has none" in loaded.notes
    assert find_base_model(loaded.model).score.weight.requires_grad or tuning == "lora"
    change_everything_trained(loaded.model)
    expected = scores_of(loaded.model)
    out = tmp_path / "saved"
    loaded.model.save_pretrained(out)
    if tuning == "lora":
        again = load_reward(model_name_or_path=str(model_folder), adapter_name_or_path=str(out), is_trainable=False)
        assert any(
            "modules.score" in key or "score.weight" in key for key in load_file(out / "adapter_model.safetensors")
        )
    else:
        shutil.copy(model_folder / "tokenizer.json", out)
        shutil.copy(model_folder / "tokenizer_config.json", out)
        again = load_reward(model_name_or_path=str(out), is_trainable=False)
    torch.testing.assert_close(scores_of(again.model), expected, atol=1e-5, rtol=1e-5)
    assert not any(parameter.requires_grad for parameter in again.model.parameters())


def test_an_adapter_is_one_that_peft_loads_by_itself(load_reward, scores_of, model_folder, tmp_path):
    loaded = load_reward(model_name_or_path=str(model_folder))
    change_everything_trained(loaded.model)
    loaded.model.save_pretrained(tmp_path / "saved")
    settings = json.loads((tmp_path / "saved" / "adapter_config.json").read_text())
    assert settings["task_type"] == "SEQ_CLS"
    assert "score" in settings["modules_to_save"]
    theirs = AutoPeftModelForSequenceClassification.from_pretrained(tmp_path / "saved", num_labels=1)
    theirs.get_base_model().config.pad_token_id = 0
    with torch.no_grad():
        scores = theirs.eval()(input_ids=IDS, attention_mask=MASK).logits[:, 0]
    torch.testing.assert_close(scores, scores_of(loaded.model), atol=1e-5, rtol=1e-5)


def test_a_saved_model_is_one_that_transformers_loads_by_itself(load_reward, scores_of, model_folder, tmp_path):
    loaded = load_reward(model_name_or_path=str(model_folder), finetuning_type="full")
    loaded.model.save_pretrained(tmp_path / "saved")
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
    assert theirs.config.pad_token_id == 0
    with torch.no_grad():
        scores = theirs(input_ids=IDS, attention_mask=MASK).logits[:, 0]
    torch.testing.assert_close(scores, scores_of(loaded.model), atol=1e-5, rtol=1e-5)


def test_training_goes_on_with_a_saved_adapter_and_its_head(load_reward, scores_of, model_folder, tmp_path):
    loaded = load_reward(model_name_or_path=str(model_folder))
    change_everything_trained(loaded.model)
    loaded.model.save_pretrained(tmp_path / "saved")
    again = load_reward(model_name_or_path=str(model_folder), adapter_name_or_path=str(tmp_path / "saved"))
    torch.testing.assert_close(scores_of(again.model), scores_of(loaded.model), atol=1e-5, rtol=1e-5)
    trained = [name for name, value in again.model.named_parameters() if value.requires_grad]
    assert any("score.modules_to_save" in name for name in trained)


@pytest.mark.parametrize("family", [each for each in FAMILIES if each not in WITHOUT_CLASSIFIER])
def test_every_family_has_a_score_head(load_reward, scores_of, model_folder, family):
    tiny_model(family).save_pretrained(model_folder)
    loaded = load_reward(model_name_or_path=str(model_folder))
    assert scores_of(loaded.model).shape == (2,)


@pytest.mark.parametrize("family", WITHOUT_CLASSIFIER)
def test_a_family_without_a_classifier_is_refused(load_reward, model_folder, family):
    tiny_model(family).save_pretrained(model_folder)
    with pytest.raises(ModelError, match=r"transformers has none for \w+ForCausalLM. Use another model family"):
        load_reward(model_name_or_path=str(model_folder))


def test_the_head_is_no_target_of_an_adapter(load_reward, model_folder):
    loaded = load_reward(model_name_or_path=str(model_folder), lora_target="all")
    assert "score" not in loaded.model.peft_config["default"].target_modules


def test_the_head_stays_exact_beside_a_body_in_half_precision(load_reward, model_folder):
    loaded = load_reward(model_name_or_path=str(model_folder), finetuning_type="full")
    loaded.model.save_pretrained(model_folder)
    again = load_reward(model_name_or_path=str(model_folder), is_trainable=False, infer_dtype="bfloat16")
    base = again.model
    assert base.score.weight.dtype == torch.float32
    assert base.model.embed_tokens.weight.dtype == torch.bfloat16
    assert torch.equal(base.score.weight, loaded.model.score.weight)


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
@pytest.mark.parametrize("bias", [0.0, 1.5])
def test_a_value_head_of_llama_factory_is_read(load_reward, scores_of, model_folder, kind, bias):
    tensors = value_head(model_folder, kind=kind, bias=bias)
    loaded = load_reward(model_name_or_path=str(model_folder), is_trainable=False)
    with torch.no_grad():
        states = tiny_model("llama").model(input_ids=IDS, attention_mask=MASK).last_hidden_state
        expected = (states @ tensors["v_head.summary.weight"][0] + bias)[[0, 1], [4, 3]]
    torch.testing.assert_close(scores_of(loaded.model), expected, atol=1e-5, rtol=1e-5)
    assert any(note.startswith(f"the score head is that of {model_folder}/value_head.") for note in loaded.notes)


def test_a_bias_that_transformers_has_no_place_for_is_found_again(load_reward, scores_of, model_folder, tmp_path):
    value_head(model_folder, bias=1.5)
    loaded = load_reward(model_name_or_path=str(model_folder), finetuning_type="full")
    loaded.model.save_pretrained(tmp_path / "saved")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model_folder / name, tmp_path / "saved")
    again = load_reward(model_name_or_path=str(tmp_path / "saved"), is_trainable=False)
    torch.testing.assert_close(scores_of(again.model), scores_of(loaded.model), atol=1e-5, rtol=1e-5)


def test_an_adapter_of_llama_factory_brings_the_head_beside_it(
    load_reward, run_config, scores_of, model_folder, tmp_path
):

    config = run_config(model_name_or_path=str(model_folder))
    load_model(config, load_tokenizer(config.model)).model.save_pretrained(tmp_path / "adapter")
    tensors = value_head(tmp_path / "adapter")
    settings = {"model_name_or_path": str(model_folder), "adapter_name_or_path": str(tmp_path / "adapter")}
    loaded = load_reward(**settings, is_trainable=False)
    assert torch.equal(loaded.model.score.weight, tensors["v_head.summary.weight"])
    with pytest.raises(ModelError, match=r"has no score head among its trained modules.*create_new_adapter: true"):
        load_reward(**settings)
    again = load_reward(**settings, create_new_adapter=True)
    torch.testing.assert_close(scores_of(again.model), scores_of(loaded.model), atol=1e-5, rtol=1e-5)


def test_a_language_model_is_no_reward_model_and_the_message_lists_what_is_there(load_reward, model_folder):
    with pytest.raises(
        ModelError, match=r"has no score head, .*Found: .*LlamaForCausalLM with config.json, .*model.safetensors"
    ):
        load_reward(model_name_or_path=str(model_folder), is_trainable=False)


@pytest.mark.parametrize("is_trainable", [False, True])
def test_a_classifier_without_its_head_is_refused(load_reward, model_folder, is_trainable):
    load_reward(model_name_or_path=str(model_folder), finetuning_type="full").model.save_pretrained(model_folder)
    tensors = load_file(model_folder / "model.safetensors")
    del tensors["score.weight"]
    save_file(tensors, model_folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"has no score head.*LlamaForSequenceClassification with"):
        load_reward(model_name_or_path=str(model_folder), is_trainable=is_trainable)


def test_a_classifier_with_several_labels_is_refused(load_reward, model_folder):
    load_reward(model_name_or_path=str(model_folder), finetuning_type="full").model.save_pretrained(model_folder)
    tensors = load_file(model_folder / "model.safetensors")
    tensors["score.weight"] = torch.zeros(3, 32)
    save_file(tensors, model_folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"has the shape \[3, 32\]; a reward model has one score per text"):
        load_reward(model_name_or_path=str(model_folder), is_trainable=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 16}, r"holds a head of shape \[1, 16\], and this model needs \[1, 32\]"),
        ({"name": "summary.weight"}, r"holds no v_head.summary.weight; found: summary.weight, v_head.summary.bias"),
    ],
)
def test_a_value_head_that_does_not_fit_is_refused(load_reward, model_folder, options, message):
    value_head(model_folder, **options)
    with pytest.raises(ModelError, match=message):
        load_reward(model_name_or_path=str(model_folder), is_trainable=False)


def test_a_file_that_would_run_code_is_refused(load_reward, model_folder):
    torch.save({"v_head.summary.weight": shutil.rmtree}, model_folder / "value_head.bin")
    with pytest.raises(ModelError, match=r"value_head.bin cannot be read as a file of tensors.*would run code"):
        load_reward(model_name_or_path=str(model_folder), is_trainable=False)


def test_a_head_can_be_put_on_a_gguf_file(load_reward, scores_of, write_gguf):
    loaded = load_reward(model_name_or_path=str(write_gguf(weights=True)[0]))
    assert scores_of(loaded.model).shape == (2,)


def test_the_adapter_of_a_reward_model_is_not_put_on_a_language_model(load_reward, run_config, model_folder, tmp_path):
    load_reward(model_name_or_path=str(model_folder)).model.save_pretrained(tmp_path / "saved")
    settings = {"model_name_or_path": str(model_folder), "adapter_name_or_path": str(tmp_path / "saved")}
    for is_trainable in (True, False):
        with pytest.raises(
            ModelError, match=r"adapter_name_or_path: .*saved belongs to a reward model.*stage dpo needs"
        ):
            load_model(
                run_config(**settings, stage="dpo"),
                load_tokenizer(run_config(**settings).model),
                is_trainable=is_trainable,
            )
