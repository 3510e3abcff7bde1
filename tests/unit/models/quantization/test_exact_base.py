import pytest

from tunesmith.models.quantization.exact_base import find_exact_base


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("org/Qwen3-8B-GPTQ-Int4", "org/Qwen3-8B"),
        ("org/Llama-3.2-1B-Instruct-AWQ", "org/Llama-3.2-1B-Instruct"),
        ("org/model-bnb-4bit", "org/model"),
        ("org/Model-7B-quantized.w4a16", "org/Model-7B"),
        ("toy-fp8-dynamic", "toy"),
        ("org/plain", None),
        ("org/fp8lovers", None),
    ],
)
def test_marks_of_a_compression_are_taken_off_the_name(name, expected):
    assert find_exact_base(name, None) == expected


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\nbase_model: org/exact\n---\n# Model", "org/exact"),
        ("---\nbase_model:\n- org/first\n- org/second\n---\n", "org/first"),
        ("---\nbase_model: []\n---\n", "named"),
        ("---\nbase_model: [\n---\n", "named"),
        ("---\n- a list\n---\n", "named"),
        ("# no settings", "named"),
    ],
)
def test_the_card_knows_better_than_the_name(tmp_path, card, expected):
    (tmp_path / "README.md").write_text(card, encoding="utf-8")
    assert find_exact_base("named-gptq", tmp_path) == expected
