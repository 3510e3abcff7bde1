from typing import Literal

import pytest

from tunesmith.config.coercion import PlainText
from tunesmith.config.settings import GROUPS, _build_kind, all_settings


def test_no_key_is_in_two_groups():
    counts = [len(cls.__dataclass_fields__) for cls in GROUPS.values()]
    assert sum(counts) == len(all_settings())


@pytest.mark.parametrize(
    ("key", "written", "typed"),
    [
        ("gradient_checkpointing", PlainText("auto"), "auto"),
        ("gradient_checkpointing", PlainText("no"), False),
        ("head_chunk_tokens", PlainText("256"), 256),
        ("resume_from_checkpoint", PlainText("true"), True),
        ("resume_from_checkpoint", PlainText("out/checkpoint-5"), "out/checkpoint-5"),
        ("resume_from_checkpoint", PlainText("null"), None),
        ("report_to", PlainText("none"), ("none",)),
        ("report_to", None, ()),
        ("rope_scaling", "none", None),
        ("bf16", PlainText("None"), None),
        ("weight_decay", 0, 0.0),
    ],
)
def test_settings_with_several_kinds_take_the_narrowest(key, written, typed):
    value = all_settings()[key].convert(written)
    assert value == typed
    assert type(value) is type(typed)


def test_defaults_are_values_that_could_be_written():
    for setting in all_settings().values():
        written = list(setting.default) if isinstance(setting.default, tuple) else setting.default
        assert setting.convert(written) == setting.default


def test_an_annotation_without_a_kind_is_a_mistake_of_ours():
    assert _build_kind(Literal["a"]).render() == "a"
    with pytest.raises(TypeError, match="no kind of value is known"):
        _build_kind(bytes)


def test_what_is_allowed_is_said_in_words():
    allowed = {
        key: all_settings()[key].render_allowed() for key in ("bf16", "lora_target", "row_variables", "cache_dir")
    }
    assert allowed == {
        "bf16": "true or false or null",
        "lora_target": "a list (or words with commas between them), each text",
        "row_variables": "a mapping of names to text",
        "cache_dir": "a path or null",
    }


def test_the_table_is_that_of_the_groups_whenever_it_is_read():
    assert all_settings.__wrapped__() == all_settings()
    assert {setting.group for setting in all_settings().values()} == set(GROUPS)
