"""Folders of adapters that are not whole, or not of peft's making, are named with what is wrong."""

import json
import shutil

import pytest
from peft import LoraConfig, get_peft_model

from tests.tiny.models import tiny_model
from tunesmith.errors import ModelError
from tunesmith.models.adapters import attach_adapter
from tunesmith.models.adapters.stored import check_has_weights, read_settings


@pytest.fixture
def adapter(tmp_path):
    folder = tmp_path / "adapter"
    get_peft_model(tiny_model(), LoraConfig(r=4, target_modules=["q_proj"])).save_pretrained(folder)
    return folder


def test_settings_are_read_as_peft_reads_them(adapter):
    assert read_settings(adapter).r == 4


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "adapter_config.json cannot be read as JSON: Expecting property name"),
        ("[]", "adapter_config.json names no peft_type"),
        ("{}", "adapter_config.json names no peft_type"),
        ('{"peft_type": "STRANGE"}', "says peft_type: STRANGE, which the installed peft does not know"),
        ('{"peft_type": 3}', "says peft_type: 3, which the installed peft does not know"),
    ],
)
def test_settings_that_are_none_are_refused(adapter, content, words):
    (adapter / "adapter_config.json").write_text(content, encoding="utf-8")
    with pytest.raises(ModelError, match="adapter_name_or_path: ") as caught:
        read_settings(adapter)
    assert words in str(caught.value)


def test_settings_without_weights_are_half_an_adapter(adapter):
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"holds an adapter_config.json and no adapter_model.safetensors"):
        attach_adapter(tiny_model(), str(adapter))


def test_weights_of_older_versions_are_weights(adapter):
    shutil.move(adapter / "adapter_model.safetensors", adapter / "adapter_model.bin")
    check_has_weights(adapter)


def test_settings_of_a_newer_version_are_no_obstacle(adapter):
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "unheard_of": 3}), encoding="utf-8")
    with pytest.warns(UserWarning, match="unheard_of"):
        assert read_settings(adapter).r == 4
