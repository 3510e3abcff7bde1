"""What `tunesmith models inspect` says of models and adapters; nothing of it needs weights."""

import pytest

from tests.tiny.runs import tiny_run, write_dataset, write_model
from tunesmith.cli.main import main
from tunesmith.training.run import run_training


def inspect(capsys, *words) -> dict[str, str]:
    assert main(["models", "inspect", *map(str, words)]) == 0
    lines = capsys.readouterr().out.splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines if ":" in line)}


def without_weights(folder):
    for file in folder.glob("*.safetensors"):
        file.unlink()
    return folder


def test_a_model_is_described_without_its_weights(tmp_path, capsys):
    facts = inspect(capsys, without_weights(write_model(tmp_path / "toy")))
    assert facts["family"] == "llama, LlamaForCausalLM"
    assert facts["layers"] == "2 (model.layers), 32 wide"
    assert facts["attention heads"] == "4 of width 8, 2 for keys and values"
    assert facts["attention kinds"] == "full in all layers"
    assert facts["lora_target llama_attn"] == "q_proj, k_proj, v_proj, o_proj"
    assert facts["lora_target llama_mlp"] == "gate_proj, up_proj, down_proj"
    assert facts["vocabulary"] == "420 rows, embedding and head tied"
    assert facts["positions"] == "512"
    assert "an answer ends at <|im_end|>" in facts["template"]
    assert facts["tokenizer"].endswith(" rows to spare)")
    # embeddings 420 x 32; a layer 9,216 and two norms; one norm at the end
    assert facts["size"].startswith(f"{420 * 32 + 2 * (9216 + 64) + 32:,} weights, ")
    assert facts["saved in"] == "float32"


def test_windows_caps_and_experts_are_named(tmp_path, capsys):
    gemma = inspect(capsys, without_weights(write_model(tmp_path / "gemma", "gemma2")))
    assert gemma["attention kinds"] == "1 sliding attention, 1 full attention (window 16)"
    assert gemma["logits"] == "capped at 5"
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}
    mixture = inspect(capsys, without_weights(write_model(tmp_path / "moe", "qwen3_moe", **experts)))
    assert mixture["experts"] == "4 in a layer, 2 for each token"
    assert mixture["lora_target experts"] == "experts.gate_up_proj, experts.down_proj"
    assert mixture["lora_target routers"] == "gate.weight"


def test_an_adapter_is_described_with_its_base(tmp_path, capsys):
    write_model(tmp_path / "model")
    write_dataset(tmp_path / "data", num_rows=4)
    run_training(tiny_run(tmp_path, max_steps=1, lora_target="q_proj", lora_alpha=6))
    facts = inspect(capsys, tmp_path / "out")
    assert facts["adapter"] == f"{tmp_path / 'out'}: lora, rank 4, alpha 6, on q_proj"
    assert facts["trained beside"] == f"{tmp_path / 'model'} (420 rows)"


def test_a_model_without_a_template_is_told_how_to_choose_one(tmp_path, capsys):
    folder = write_model(tmp_path / "toy")
    (folder / "chat_template.jinja").unlink()
    assert inspect(capsys, folder)["template"].startswith("template is auto, but the tokenizer has no chat template")


@pytest.mark.parametrize("words", [[], ["inspekt", "x"], ["inspect", "/nowhere/at/all"]])
def test_what_cannot_be_inspected_is_said(words, capsys):
    code = main(["models", *words])
    captured = capsys.readouterr()
    if not words:
        assert (code, "usage: tunesmith models" in captured.out) == (0, True)
    elif words[0] == "inspekt":
        assert (code, "Did you mean" in captured.err) == (2, True)
    else:
        assert (code, "/nowhere/at/all" in captured.err) == (2, True)
