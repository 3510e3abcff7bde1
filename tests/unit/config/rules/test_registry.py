import pytest

from tunesmith.config import load_config
from tunesmith.config.rules import RULES, find_purpose


@pytest.mark.parametrize(
    ("values", "purpose"),
    [
        ({"model_name_or_path": "m"}, "generate"),
        ({"model_name_or_path": "m", "adapter_name_or_path": "a", "export_dir": "x"}, "export"),
        ({"model_name_or_path": "m", "dataset": "d"}, "train"),
        ({"eval_dataset": "d", "do_predict": True, "predict_with_generate": True}, "train"),
        ({"output_dir": "o"}, "train"),
        ({"eval_dataset": "d"}, "train"),
    ],
)
def test_settings_tell_what_they_are_for(values, purpose):
    assert find_purpose(load_config(values, environ={}, purpose="read")) == purpose


def test_rules_about_a_value_that_could_not_be_understood_stay_silent(problems):
    assert problems(fp16="perhaps", bf16=True) == ["fp16: `fp16` is 'perhaps'; allowed is true or false or null."]
    assert problems(output_dir=["a"], dataset="identity") == [
        "output_dir: `output_dir` is ['a']; allowed is a path or null."
    ]


def test_looking_asks_nothing_about_files_and_machine():
    config = load_config({"model_name_or_path": "/none", "fp16": True, "dataset": "none"}, environ={}, purpose="read")
    assert config.training.fp16 is True


def test_a_file_for_chat_needs_no_rows_and_no_folder(problems):
    assert problems(without=("dataset", "output_dir"), infer_backend="huggingface", template="qwen") == []


def test_every_rule_has_a_name_that_states_a_fact():
    assert all(function.__doc__ and not function.__name__.startswith("check_") for function, _ in RULES)
