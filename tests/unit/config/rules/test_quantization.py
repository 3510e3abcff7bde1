import pytest

from tunesmith.config.machine import Machine


def test_four_bits_beside_lora_are_allowed(problems):
    assert problems(quantization_bit=4) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"quantization_bit": 4, "finetuning_type": "full"},
            (
                "quantization_bit: `quantization_bit: 4` cannot be combined with `finetuning_type: full`: quantised "
                "weights cannot be trained themselves, only an adapter beside them; set `finetuning_type: lora`."
            ),
        ),
        (
            {"quantization_bit": 4, "finetuning_type": "lokr"},
            (
                "quantization_bit: `quantization_bit: 4` cannot be combined with `finetuning_type: lokr`, which "
                "computes with the frozen weights themselves; set `finetuning_type: lora` or remove `quantization_bit`."
            ),
        ),
        (
            {"quantization_bit": 3},
            "quantization_bit: `quantization_bit` is 3; with `quantization_method: bnb` it can be 4, 8.",
        ),
        (
            {"quantization_bit": 4, "quantization_method": "eetq"},
            "quantization_bit: `quantization_bit` is 4; with `quantization_method: eetq` it can be 8.",
        ),
        (
            {"quantization_bit": 8, "quantization_type": "fp8"},
            (
                "quantization_type: `quantization_type: fp8` is a format of torchao's 8 bits; set "
                "`quantization_method: torchao` and `quantization_bit: 8`, or another type."
            ),
        ),
        (
            {"quantization_bit": 4, "quantization_method": "hqq", "quantization_type": "fp4"},
            (
                "quantization_type: `quantization_type: fp4` is a format of bitsandbytes' 4 bits; with "
                "`quantization_method: hqq` and `quantization_bit: 4` remove it."
            ),
        ),
        (
            {"quantization_bit": 4, "quantization_method": "hqq", "use_dora": True},
            (
                "use_dora: `use_dora: true` cannot read weights of `quantization_method: hqq`; use "
                "`quantization_method: bnb` or remove `use_dora`."
            ),
        ),
    ],
)
def test_contradictions_are_refused(problems, changes, message):
    assert [text.partition(" (see ")[0] for text in problems(**changes)] == [message]


def test_random_weights_are_not_compressed(problems):
    found = problems(quantization_bit=4, train_from_scratch=True)
    assert any("`train_from_scratch: true` trains every weight, and quantised ones cannot be" in text for text in found)


@pytest.mark.parametrize(
    "changes",
    [
        {"quantization_bit": 8, "quantization_method": "torchao", "quantization_type": "fp8"},
        {"quantization_bit": 4, "quantization_type": "fp4", "use_dora": True},
        {"quantization_bit": 2, "quantization_method": "hqq"},
    ],
)
def test_what_fits_together_is_taken(problems, changes):
    assert problems(**changes) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fp8": True}, "`fp8: true` needs a GPU"),
        ({"fp8": True}, "`fp8: true` computes the products of whole weights"),
        ({"fp8": True, "qat": "int4-weight"}, "`fp8: true` and `qat: int4-weight` round differently"),
        ({"fp8": True, "fp16": True}, "`fp8: true` is mixed with bfloat16; remove `fp16: true`"),
        ({"qat": "int4-weight", "quantization_bit": 4}, "rounds exact weights while they are trained"),
        (
            {"qat": "int4-weight", "finetuning_type": "freeze"},
            "works with `finetuning_type: full` and `lora`",
        ),
        ({"qat": "int4-weight", "stage": "rm"}, "is for models that `tunesmith export --quantize` compresses"),
        ({"qat": "int4-weight", "use_dora": True}, "whose exact lengths `use_dora: true` divides by"),
        ({"qat": "int4-weight", "lora_dropout": 0.1}, "the adapter has no inputs of its own to drop"),
        ({"qat_start_step": 5}, "`qat_start_step: 5` has no effect without `qat`"),
        ({"qat": "int8-weight", "qat_group_size": 64}, "has no effect with `qat: int8-weight`"),
        ({"upcast_layernorm": True, "pure_bf16": True}, "`upcast_layernorm: true` contradicts `pure_bf16: true`"),
        ({"checkpoint_every": 2, "gradient_checkpointing": False}, "has no effect while gradient checkpointing is off"),
        ({"gradient_checkpointing": "selective", "use_reentrant_gc": True}, "newer implementation alone"),
        ({"activation_offload": True}, "`activation_offload: true` needs a GPU"),
        ({"enable_liger_kernel": True}, "`enable_liger_kernel: true` needs a GPU"),
        ({"shift_attn": True}, "which transformers has had no place for since 4.48"),
    ],
)
def test_lean_training_refuses_what_cannot_be(problems, changes, words):
    found = problems(**changes)
    assert any(words in text for text in found), found


@pytest.mark.parametrize(
    "changes",
    [
        {"qat": "int4-weight", "qat_start_step": 10, "qat_group_size": 64},
        {"gradient_checkpointing": "selective"},
        {"gradient_checkpointing": True, "checkpoint_every": 2},
        {"upcast_layernorm": True, "bf16": True},
        {"shift_attn": False},
    ],
)
def test_lean_training_takes_what_fits(problems, changes):
    assert problems(**changes) == []


def test_dora_beside_eight_bits_is_left_to_machines_with_a_gpu(problems):
    settings = {"quantization_bit": 8, "use_dora": True}
    (found,) = problems(**settings)
    assert "`use_dora: true` cannot be combined with `quantization_bit: 8` on a CPU" in found
    assert problems(**settings, machine=Machine("nvidia", "its device files are there")) == []
