"""The whole way of a new token: trained, saved, moved, merged, loaded again."""

import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.tiny.runs import tiny_run, write_dataset, write_model
from tunesmith.config import load_config
from tunesmith.errors import ModelError
from tunesmith.export.merge import export_model
from tunesmith.inference.load import load_run_tokenizer
from tunesmith.models import load_model
from tunesmith.training.run import run_training

TEXT = "Say 好的 twice.<|a|>"


@pytest.mark.parametrize(
    "settings",
    [
        {"tied": True},
        {"tied": False},
        {"tied": True, "quantization_bit": 4},
        {"tied": True, "finetuning_type": "vera", "lora_rank": None},
    ],
    ids=str,
)
def test_a_moved_adapter_with_new_tokens_gives_the_same_logits_merged_and_loaded_again(tmp_path, settings):
    tied = settings["tied"]
    more = {key: value for key, value in settings.items() if key != "tied"}
    is_compressed = "quantization_bit" in more
    if is_compressed:
        pytest.importorskip("bitsandbytes")
    write_model(tmp_path / "model", tied=tied)
    write_dataset(tmp_path / "data", num_rows=8)
    config = tiny_run(
        tmp_path, max_steps=2, num_train_epochs=None, add_tokens=["好的"], add_special_tokens=["<|a|>"], **more
    )
    trained = run_training(config).trainer.model
    elsewhere = tmp_path / "another" / "place"
    shutil.move(tmp_path / "out", elsewhere)
    shutil.move(tmp_path / "model", elsewhere / "model")
    places = {"model_name_or_path": str(elsewhere / "model"), "adapter_name_or_path": str(elsewhere)}

    running = load_config({**places, "use_cpu": True, "infer_dtype": "float32"}, purpose="generate", environ={})
    tokenizer = load_run_tokenizer(running)
    ids = torch.tensor([tokenizer(TEXT)["input_ids"]])
    assert ids[0, -1] == len(tokenizer) - 1 == 421
    loaded = load_model(running, tokenizer, is_trainable=False)

    export_model(
        load_config({**places, "export_dir": str(tmp_path / "merged"), "use_cpu": True}, purpose="export", environ={})
    )
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    assert AutoTokenizer.from_pretrained(tmp_path / "merged")(TEXT)["input_ids"] == ids[0].tolist()
    assert merged.config.vocab_size == merged.get_input_embeddings().weight.shape[0] == 448
    ends = merged.get_input_embeddings().weight, merged.get_output_embeddings().weight
    assert (ends[0] is ends[1]) == (tied and "finetuning_type" not in more)  # only beside LoRA can they stay one
    with torch.no_grad():
        expected, found = loaded.model(input_ids=ids).logits, merged(input_ids=ids).logits
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        if not is_compressed:  # beside exact weights, the trained model itself is the same too
            torch.testing.assert_close(trained.eval()(input_ids=ids).logits, expected, atol=1e-4, rtol=1e-4)
    for weight in ends:
        assert (weight[421] - weight[447]).abs().max() > 1e-3  # the row of the token has left that of the padding


def test_a_resumed_run_goes_on_with_its_rows(tmp_path):
    write_model(tmp_path / "model")
    write_dataset(tmp_path / "data", num_rows=8)
    settings = {"add_special_tokens": ["<|a|>"], "num_train_epochs": None, "save_steps": 1}
    whole = run_training(tiny_run(tmp_path, max_steps=2, **settings)).trainer.model
    shutil.rmtree(tmp_path / "out" / "checkpoint-2")
    again = run_training(tiny_run(tmp_path, max_steps=2, resume_from_checkpoint=True, **settings)).trainer.model
    for (name, one), (_, other) in zip(whole.named_parameters(), again.named_parameters(), strict=True):
        torch.testing.assert_close(one, other, msg=name)


def test_full_tuning_saves_a_model_of_the_new_size(tmp_path):
    write_model(tmp_path / "model")
    write_dataset(tmp_path / "data", num_rows=8)
    run_training(
        tiny_run(
            tmp_path,
            max_steps=1,
            num_train_epochs=None,
            finetuning_type="full",
            lora_rank=None,
            learning_rate=1e-3,
            add_special_tokens=["<|a|>"],
        )
    )
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.config.vocab_size == model.get_output_embeddings().weight.shape[0] == 448


def test_a_larger_tokenizer_needs_the_word(tmp_path):
    write_model(tmp_path / "model", vocab_size=400)
    write_dataset(tmp_path / "data", num_rows=8)
    with pytest.raises(ModelError, match=r"has embeddings for 400.*set resize_vocab: true"):
        run_training(tiny_run(tmp_path, max_steps=1, num_train_epochs=None))
    result = run_training(tiny_run(tmp_path, max_steps=1, num_train_epochs=None, resize_vocab=True))
    assert result.trainer.model.get_base_model().config.vocab_size == 448


def again(place, **settings):
    return run_training(
        tiny_run(
            place,
            output_dir=str(place / "second"),
            max_steps=1,
            num_train_epochs=None,
            adapter_name_or_path=str(place / "out"),
            **settings,
        )
    )


@pytest.fixture
def with_adapter(tmp_path):
    """Train an adapter; return what does so with settings of its own."""
    write_model(tmp_path / "model")
    write_dataset(tmp_path / "data", num_rows=8)

    def train(**settings):
        run_training(tiny_run(tmp_path, max_steps=1, num_train_epochs=None, **settings))
        return tmp_path

    return train


def test_a_new_adapter_on_top_of_one_trains_and_saves_the_rows_of_new_tokens(with_adapter):
    place = with_adapter()
    trained = again(place, add_special_tokens=["<|a|>"], create_new_adapter=True).trainer.model
    assert any("modules_to_save" in name for name, value in trained.named_parameters() if value.requires_grad)
    running = load_config(
        {
            "model_name_or_path": str(place / "model"),
            "adapter_name_or_path": [str(place / "out"), str(place / "second")],
            "use_cpu": True,
            "infer_dtype": "float32",
        },
        purpose="generate",
        environ={},
    )
    tokenizer = load_run_tokenizer(running)
    ids = torch.tensor([tokenizer("Say it.<|a|>")["input_ids"]])
    assert ids[0, -1] == 420
    with torch.no_grad():
        found = load_model(running, tokenizer, is_trainable=False).model(input_ids=ids).logits
        torch.testing.assert_close(found, trained.eval()(input_ids=ids).logits, atol=1e-4, rtol=1e-4)


def test_an_adapter_without_rows_cannot_go_on_with_new_tokens(with_adapter):
    place = with_adapter()
    with pytest.raises(ModelError, match=r"no place for their rows\. Set create_new_adapter: true"):
        again(place, add_special_tokens=["<|a|>"])


@pytest.mark.parametrize("has_tokenizer", [True, False])
def test_an_adapter_goes_on_with_the_tokens_that_it_was_trained_with(with_adapter, has_tokenizer):
    place = with_adapter(add_special_tokens=["<|a|>"])
    if not has_tokenizer:
        for file in (place / "out").glob("tokenizer*"):
            file.unlink()
    trained = again(place, add_special_tokens=["<|a|>"]).trainer.model
    assert trained.get_base_model().config.vocab_size == 448


def test_an_adapter_with_rows_cannot_go_on_with_other_tokens(with_adapter):
    place = with_adapter(add_special_tokens=["<|a|>"])
    with pytest.raises(ModelError, match=r"'<\|b\|>' is new to the adapter .*Merge the adapter"):
        again(place, add_special_tokens=["<|a|>", "<|b|>"])
