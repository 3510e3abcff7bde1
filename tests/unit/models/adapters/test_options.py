"""Values of `adapter_options` are of the kinds that peft's configurations say."""

import pytest

from tunesmith.config import AdapterConfig
from tunesmith.config.peft_methods import PEFT_METHODS
from tunesmith.errors import ConfigError
from tunesmith.models.adapters import check_adapter_options


def check(kind, **options):
    check_adapter_options(AdapterConfig(finetuning_type=kind, adapter_options=options))


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("vera", {"d_initial": "x"}, "`d_initial` is 'x'; vera takes a number there."),
        ("vera", {"r": 1.5}, "`r` is 1.5; vera takes a whole number there."),
        ("vera", {"r": True}, "`r` is True; vera takes a whole number there."),
        ("vera", {"r": None}, "`r` is None; vera takes a whole number there."),
        ("vera", {"save_projection": 1}, "`save_projection` is 1; vera takes true or false there."),
        ("lora", {"bias": "some"}, "`bias` is 'some'; lora takes one of none, all, lora_only there."),
        (
            "lora",
            {"layers_to_transform": "x"},
            "`layers_to_transform` is 'x'; lora takes a list or a whole number or null there.",
        ),
        (
            "lora",
            {"layers_to_transform": ["x"]},
            "`layers_to_transform` is ['x']; lora takes a list or a whole number or",
        ),
        ("lora", {"layer_replication": 3}, "`layer_replication` is 3; lora takes a list or null there."),
        ("lora", {"eva_config": 3}, "`eva_config` is 3; lora takes a mapping or null there."),
        ("lokr", {"rank_pattern": [1]}, "`rank_pattern` is [1]; lokr takes a mapping"),
        ("trainable_tokens", {"token_indices": "5"}, "`token_indices` is '5'; trainable_tokens takes a list there."),
    ],
)
def test_values_of_another_kind_are_refused_before_anything_is_loaded(kind, options, words):
    with pytest.raises(ConfigError, match="adapter_options: ") as caught:
        check(kind, **options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("vera", {"r": 4, "d_initial": 1, "save_projection": False}),
        ("vera", {"r": 4.0, "layers_to_transform": [0, 1]}),
        ("lora", {"bias": "all", "layers_to_transform": 1, "exclude_modules": ["k_proj"]}),
        ("lora", {"layers_pattern": "layers", "trainable_token_indices": {"embed_tokens": [5, 6]}}),
        ("lora", {"layers_to_transform": None}),
        ("trainable_tokens", {"token_indices": [5, 9]}),
    ],
)
def test_values_of_the_right_kind_are_taken(kind, options):
    check(kind, **options)


@pytest.mark.parametrize("kind", PEFT_METHODS)
def test_the_kinds_of_every_method_can_be_read(kind):
    with pytest.raises(ConfigError, match=f"`no_such_option` is not an option of {kind}"):
        check(kind, no_such_option=1)
