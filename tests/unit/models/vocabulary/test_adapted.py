import pytest
from peft import LoraConfig, TrainableTokensConfig, get_peft_model

from tests.tiny.models import tiny_model
from tunesmith.config import AdapterConfig
from tunesmith.models.vocabulary import find_adapted_rows, find_end_names, train_new_rows

ENDS = ("embed_tokens", "lm_head")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"target_modules": ["q_proj"]}, None),
        ({"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}, 420),
        ({"target_modules": ["embed_tokens"]}, 420),
        ({"target_modules": ["lm_head"]}, 420),
    ],
)
def test_rows_are_read_from_the_shapes_of_what_was_saved(tmp_path, settings, expected):
    get_peft_model(tiny_model(tied=False), LoraConfig(r=4, **settings)).save_pretrained(
        tmp_path, save_embedding_layers=False
    )
    assert find_adapted_rows([str(tmp_path)], ENDS) == expected


def test_a_few_trained_rows_do_not_say_how_many_there_are(tmp_path):
    settings = TrainableTokensConfig(token_indices=[5, 9, 200], target_modules=["embed_tokens"])
    get_peft_model(tiny_model(), settings).save_pretrained(tmp_path)
    assert (tmp_path / "adapter_model.safetensors").is_file()
    assert find_adapted_rows([str(tmp_path)], ENDS) is None


def test_what_is_not_there_or_damaged_has_no_rows(tmp_path):
    (tmp_path / "adapter_model.safetensors").write_text("no weights", encoding="utf-8")
    assert find_adapted_rows([str(tmp_path), str(tmp_path / "absent")], ENDS) is None


def test_ends_are_found_by_name():
    assert find_end_names(tiny_model()) == ENDS


@pytest.mark.parametrize(
    ("tied", "settings", "expected"),
    [
        (True, {}, ("model.embed_tokens",)),
        (False, {}, ("model.embed_tokens", "lm_head")),
        (False, {"additional_target": ("lm_head",)}, ("lm_head", "model.embed_tokens")),
        (False, {"lora_target": ("q_proj", "embed_tokens")}, ("lm_head",)),
        (True, {"additional_target": ("embed_tokens",)}, ("embed_tokens",)),
        (True, {"finetuning_type": "ia3"}, ("model.embed_tokens", "lm_head")),  # which peft cannot train as one
        (True, {"finetuning_type": "full"}, ()),
    ],
)
def test_an_adapter_trains_the_ends_that_nothing_else_trains(tied, settings, expected):
    assert train_new_rows(AdapterConfig(**settings), tiny_model(tied=tied)).additional_target == expected
