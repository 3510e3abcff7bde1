import pytest

from tests.unit.config.conftest import GPU


@pytest.mark.parametrize(
    ("key", "value", "way_out"),
    [
        ("fp16", True, "Remove it: the precision is then chosen for this machine."),
        ("tf32", True, "Remove it."),
        ("flash_attn", "fa2", "Set `flash_attn: auto`."),
        ("flash_attn", "fa3", "Set `flash_attn: auto`."),
        ("ddp_backend", "nccl", "Remove it or use gloo."),
    ],
)
def test_settings_for_gpus_are_refused_without_one(problems, key, value, way_out):
    shown = str(value).lower() if value is True else value
    assert problems(**{key: value}) == [
        f"{key}: `{key}: {shown}` needs a GPU, and no GPU was found on this machine. {way_out}"
    ]
    assert problems(machine=GPU, **{key: value}) == []


def test_a_gpu_that_is_not_used_does_not_count(problems):
    assert problems(machine=GPU, use_cpu=True, fp16=True) == [
        (
            "fp16: `fp16: true` needs a GPU, and `use_cpu` is true. Remove it: the precision is then "
            "chosen for this machine. "
            "(see use_cpu)"
        )
    ]


def test_paged_optimizers_need_a_gpu(problems):
    assert any("`optim: paged_adamw_8bit` needs a GPU" in text for text in problems(optim="paged_adamw_8bit"))


def test_bfloat16_and_explicit_negatives_need_none(problems):
    assert problems(bf16=True, fp16=False, tf32=False) == []
