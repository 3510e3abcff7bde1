import pytest

from tests.tiny.runs import tiny_settings
from tunesmith.config import load_config
from tunesmith.errors import ConfigError
from tunesmith.models import AttentionChoice
from tunesmith.models.segments import SEGMENTS
from tunesmith.training.layout import resolve_layout


@pytest.mark.parametrize(
    ("padding_free", "supports_flat", "expected"),
    [
        ("auto", True, "flat"),
        ("auto", False, "padded"),
        (True, True, "flat"),
        (False, True, "padded"),
        (False, False, "padded"),
    ],
)
def test_layout_follows_the_setting_and_the_attention(tmp_path, padding_free, supports_flat, expected):
    config = load_config(tiny_settings(tmp_path, padding_free=padding_free), purpose="read")
    assert resolve_layout(config, AttentionChoice("any", supports_flat, "a reason")) == expected


def test_an_attention_that_cannot_keep_rows_apart_is_refused(tmp_path):
    config = load_config(tiny_settings(tmp_path, padding_free=True, flash_attn="sdpa"), purpose="read")
    with pytest.raises(ConfigError, match=r"padding_free is true.*sdpa: asked for.*flash_attn: auto"):
        resolve_layout(config, AttentionChoice("sdpa", False, "asked for"))


def test_compiled_models_get_padded_batches(tmp_path):
    config = load_config(tiny_settings(tmp_path, torch_compile=True), purpose="read")
    assert resolve_layout(config, AttentionChoice(SEGMENTS, True, "a reason")) == "padded"


@pytest.mark.parametrize(
    ("settings", "way_out"),
    [({"padding_free": True}, "padding_free: false"), ({"packing": True}, "flash_attn: sdpa")],
)
def test_attention_that_would_be_compiled_for_every_batch_is_refused(tmp_path, settings, way_out):
    config = load_config(tiny_settings(tmp_path, torch_compile=True, **settings), purpose="read")
    with pytest.raises(ConfigError, match=f"torch_compile and {next(iter(settings))} .* Set {way_out}"):
        resolve_layout(config, AttentionChoice(SEGMENTS, True, "a reason"))
    if "packing" in settings:
        assert resolve_layout(config, AttentionChoice("sdpa", False, "a reason")) == "padded"
