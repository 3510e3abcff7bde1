"""Number types of a run."""

import pytest
import torch

from tunesmith.errors import ModelError
from tunesmith.models import precision as module
from tunesmith.models.precision import find_native_bf16, resolve_inference_dtype, resolve_precision

FP32, BF16 = torch.float32, torch.bfloat16


@pytest.fixture
def processor(tmp_path, monkeypatch):
    """Pretend that the processor has these flags."""

    def set_flags(flags: str, key: str = "flags") -> None:
        file = tmp_path / f"cpuinfo-{flags.replace(' ', '-')}"
        file.write_text(f"processor\t: 0\n{key}\t\t: fpu vme {flags}\n", encoding="utf-8")
        monkeypatch.setattr(module, "_CPU_INFO", file)

    return set_flags


@pytest.mark.parametrize(
    ("flags", "key", "expected"),
    [
        ("avx512f avx512_bf16", "flags", "avx512_bf16"),
        ("amx_bf16", "flags", "amx_bf16"),
        ("asimd bf16", "Features", "bf16"),
        ("avx2 avx512f", "flags", None),
    ],
)
def test_native_bf16_is_read_off_the_processor(processor, flags, key, expected):
    processor(flags, key)
    assert find_native_bf16("cpu") == expected


@pytest.mark.parametrize(
    ("flags", "tuning", "frozen", "autocast"),
    [
        ("avx512_bf16", "lora", BF16, BF16),
        ("avx512_bf16", "freeze", BF16, BF16),
        ("avx512_bf16", "full", FP32, BF16),
        ("avx2", "lora", FP32, None),
        ("avx2", "full", FP32, None),
    ],
)
def test_auto_keeps_trained_weights_in_fp32(processor, run_config, flags, tuning, frozen, autocast):
    processor(flags)
    found = resolve_precision(run_config(finetuning_type=tuning), "cpu")
    assert (found.frozen_dtype, found.trained_dtype, found.autocast_dtype) == (frozen, FP32, autocast)
    assert found.reason.startswith("auto: ")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"bf16": True}, (BF16, FP32, BF16)),
        ({"bf16": True, "finetuning_type": "full"}, (FP32, FP32, BF16)),
        ({"pure_bf16": True}, (BF16, BF16, None)),
        ({"bf16": False}, (FP32, FP32, None)),
    ],
)
def test_explicit_settings_are_obeyed_whatever_the_processor(processor, run_config, settings, expected):
    processor("avx2")
    found = resolve_precision(run_config(**settings), "cpu")
    assert (found.frozen_dtype, found.trained_dtype, found.autocast_dtype) == expected


def test_slow_bf16_is_obeyed_and_stated(processor, run_config):
    processor("avx2")
    assert "much slower" in resolve_precision(run_config(bf16=True), "cpu").reason
    processor("amx_bf16")
    assert "much slower" not in resolve_precision(run_config(bf16=True), "cpu").reason


def test_fp16_on_a_processor_is_refused(run_config):
    from dataclasses import replace

    config = run_config()
    config = replace(config, training=replace(config.training, fp16=True))
    with pytest.raises(ModelError, match="fp16: true needs a GPU"):
        resolve_precision(config, "cpu")


@pytest.mark.parametrize(
    ("flags", "setting", "stored", "expected"),
    [
        ("avx512_bf16", "auto", BF16, BF16),
        ("avx2", "auto", BF16, FP32),
        ("avx512_bf16", "auto", FP32, FP32),
        ("avx512_bf16", "auto", None, FP32),
        ("avx2", "bfloat16", FP32, BF16),
    ],
)
def test_type_of_a_model_that_is_only_run(processor, flags, setting, stored, expected):
    processor(flags)
    assert resolve_inference_dtype(setting, stored, "cpu") == expected


def test_norms_are_brought_to_float32_and_nothing_else():
    from tests.tiny.models import tiny_model
    from tunesmith.models.precision import upcast_norms

    model = tiny_model("qwen3").bfloat16()
    assert upcast_norms(model) == 9  # two in each layer, two of queries and keys, one at the end
    kinds = {name: value.dtype for name, value in model.named_parameters()}
    assert all((dtype == torch.float32) == ("norm" in name) for name, dtype in kinds.items())
    assert upcast_norms(model) == 0
