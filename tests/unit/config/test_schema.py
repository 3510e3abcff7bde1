import jsonschema
import pytest

from tunesmith.config.objective import STAGES
from tunesmith.config.schema import build_schema


@pytest.fixture(scope="module")
def validator():
    return jsonschema.Draft202012Validator(build_schema())


def test_it_is_a_schema():
    schema = build_schema()
    first, *others = (f"{stage}_args" for stage in STAGES)
    for name in others:  # one of them is enough: each names every setting again
        assert schema["properties"].pop(name)["properties"] == schema["properties"][first]["properties"]
    jsonschema.Draft202012Validator.check_schema(schema)


def test_a_good_file_fits(validator):
    good = {
        "model_name_or_path": "a/b",
        "dataset": ["a", "b"],
        "lora_target": "all",
        "learning_rate": "1e-4",
        "lora_rank": 8,
        "bf16": None,
        "low_cpu_mem_usage": True,
        "row_variables": {"name": "x"},
        "sft_args": {"learning_rate": 1e-5},
        "pt_args": None,
    }
    assert validator.is_valid(good)


@pytest.mark.parametrize(
    "bad",
    [
        {"learning_rat": 1},
        {"lora_rank": 0},
        {"lora_rank": 1.5},
        {"lora_dropout": 1},
        {"optim": "adam"},
        {"low_cpu_mem_usage": False},
        {"deepspeed": "x.json"},
        {"plot_loss": "maybe"},
        {"sft_args": {"learning_rat": 1}},
        {"sft_args": {"stage": "sft"}},
    ],
)
def test_a_bad_file_does_not(validator, bad):
    assert not validator.is_valid(bad)


def test_each_setting_has_its_description():
    properties = build_schema()["properties"]
    assert properties["lora_rank"]["description"].startswith("Inner dimension of the LoRA matrices.")
    assert properties["lora_rank"]["default"] == 8
    assert properties["lora_target"]["default"] == ["all"]
