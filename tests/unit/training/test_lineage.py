"""A run that is resumed is the same run: settings that decide what is learnt may not change."""

import pytest

from tunesmith.config import load_config
from tunesmith.errors import CheckpointError
from tunesmith.training.lineage import check_same_run, decisive_settings

SETTINGS = {"model_name_or_path": "a/model", "dataset": "rows", "output_dir": "out", "learning_rate": 1e-4}


def config(**changes):
    return load_config({**SETTINGS, **changes}, environ={}, purpose="read")


def test_the_same_settings_go_on():
    check_same_run(config(), decisive_settings(config()), "out/checkpoint-3")


def test_length_logging_and_a_folder_that_moved_may_change():
    moved = config(max_steps=90, logging_steps=3, save_steps=7, model_name_or_path="elsewhere/model")
    check_same_run(moved, decisive_settings(config()), "out/checkpoint-3")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"learning_rate": 1e-3}, "learning_rate was 0.0001 and is 0.001"),
        ({"template": "llama3"}, "template was 'auto' and is 'llama3'"),
        ({"lora_rank": 4}, "lora_rank was 8 and is 4"),
        ({"optim": "sgd"}, "optim was 'adamw_torch_fused' and is 'sgd'"),
        ({"model_name_or_path": "a/other"}, "model_name_or_path was 'a/model' and is 'a/other'"),
        ({"enable_thinking": False}, "enable_thinking was True and is False"),
        ({"mix_strategy": "interleave_once"}, "mix_strategy was 'concat' and is 'interleave_once'"),
        ({"adapter_name_or_path": "a", "adapter_folder": "sft"}, "adapter_folder was None and is 'sft'"),
        ({"dataset": "rows,more"}, "dataset was ['rows'] and is ['rows', 'more']"),
    ],
)
def test_what_decides_the_numbers_is_refused_by_name(changes, line):
    with pytest.raises(CheckpointError, match="a run with other settings") as refusal:
        check_same_run(config(**changes), decisive_settings(config()), "out/checkpoint-3")
    assert f"  {line}\n" in str(refusal.value)
    assert "Set them as they were" in str(refusal.value)


def test_all_differences_are_listed_together():
    with pytest.raises(CheckpointError) as refusal:
        check_same_run(config(lora_rank=4, optim="sgd"), decisive_settings(config()), "out/checkpoint-3")
    assert str(refusal.value).count(" was ") == 2 + 1  # and "was written by"


def test_a_checkpoint_from_before_a_setting_existed_is_of_the_same_run():
    recorded = decisive_settings(config())
    del recorded["use_galore"], recorded["quantization_bit"]
    check_same_run(config(), recorded, "checkpoint-1")
    with pytest.raises(CheckpointError, match="quantization_bit was None and is 4"):
        check_same_run(config(quantization_bit=4), recorded, "checkpoint-1")


@pytest.mark.parametrize(
    "changes", [{"quantization_bit": 8}, {"qat": "int8-weight"}, {"learning_rate_groups": {"a": 1}}]
)
def test_other_weights_and_rates_are_another_run(changes):
    with pytest.raises(CheckpointError, match=f"{next(iter(changes))} was None and is"):
        check_same_run(config(**changes), decisive_settings(config()), "checkpoint-1")
