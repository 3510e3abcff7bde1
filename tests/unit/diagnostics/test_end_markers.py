import json

import pytest
import torch
from safetensors.torch import save_file

from tests.tiny.models import tiny_model
from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.config import load_config
from tunesmith.diagnostics.end_markers import find_output_matrix, find_untrained_end_markers

VOCABULARY, HIDDEN, ROWS = 420, 64, 448


@pytest.fixture
def tokenizer():
    return byte_level_tokenizer(extra_specials=("<|reserved_0|>", "<|reserved_1|>"), vocab_size=VOCABULARY)


def ordinary_rows():
    return torch.randn(ROWS, HIDDEN, generator=torch.Generator().manual_seed(0))


def write(folder, tensors, *, sharded=False):
    tiny_model("llama").config.save_pretrained(folder)
    if sharded:
        save_file(tensors, folder / "part-1.safetensors")
        index = {"weight_map": dict.fromkeys(tensors, "part-1.safetensors")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        save_file(tensors, folder / "model.safetensors")


def warnings_of(folder, tokenizer, **settings):
    config = load_config({"model_name_or_path": str(folder), "stage": "sft", **settings}, purpose="read", environ={})
    return find_untrained_end_markers(config, tokenizer, ["<|im_end|>"])


def test_a_trained_marker_is_no_matter(tmp_path, tokenizer):
    write(tmp_path, {"lm_head.weight": ordinary_rows()})
    assert warnings_of(tmp_path, tokenizer) == []


@pytest.mark.parametrize("sharded", [False, True])
def test_a_marker_with_a_very_short_row_looks_untrained(tmp_path, tokenizer, sharded):
    rows = ordinary_rows()
    rows[tokenizer.eos_token_id] *= 0.1
    write(tmp_path, {"model.embed_tokens.weight": ordinary_rows(), "lm_head.weight": rows}, sharded=sharded)
    (warning,) = warnings_of(tmp_path, tokenizer)
    assert "The end marker <|im_end|> looks untrained" in warning
    assert "its row of lm_head has 0." in warning
    assert "additional_target: lm_head" in warning


def test_a_marker_whose_row_points_where_unused_ones_do_looks_untrained(tmp_path, tokenizer):
    rows = ordinary_rows()
    direction = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(1))
    unused = [*range(len(tokenizer), ROWS), *tokenizer.convert_tokens_to_ids(["<|reserved_0|>", "<|reserved_1|>"])]
    for number in (*unused, tokenizer.eos_token_id):
        rows[number] = direction + 0.05 * rows[number]
    write(tmp_path, {"model.embed_tokens.weight": rows})  # tied: the embedding scores tokens too
    (warning,) = warnings_of(tmp_path, tokenizer)
    assert "its row of embed_tokens points where those of unused tokens do, cosine " in warning


def test_a_direction_that_all_rows_share_says_nothing(tmp_path, tokenizer):
    rows = ordinary_rows() + 20 * torch.ones(HIDDEN)
    write(tmp_path, {"lm_head.weight": rows})
    assert warnings_of(tmp_path, tokenizer) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"finetuning_type": "full"},
        {"finetuning_type": "lora", "additional_target": "embed_tokens,lm_head"},
        {"finetuning_type": "lora", "lora_target": "q_proj,lm_head"},
        {"finetuning_type": "freeze", "freeze_extra_modules": "lm_head"},
    ],
)
def test_a_row_that_the_run_trains_is_no_matter(tmp_path, tokenizer, settings):
    rows = ordinary_rows()
    rows[tokenizer.eos_token_id] = 0
    write(tmp_path, {"lm_head.weight": rows})
    assert warnings_of(tmp_path, tokenizer)
    assert warnings_of(tmp_path, tokenizer, **settings) == []


def test_nothing_is_said_of_weights_that_are_not_here(tmp_path, tokenizer):
    tiny_model("llama").config.save_pretrained(tmp_path)
    assert warnings_of(tmp_path, tokenizer) == []
    config = load_config({"model_name_or_path": "some/model"}, purpose="read", environ={})
    assert find_output_matrix(config) is None
    assert find_output_matrix(load_config({}, purpose="read", environ={})) is None


def test_a_marker_of_several_tokens_is_not_judged(tmp_path, tokenizer):
    write(tmp_path, {"lm_head.weight": ordinary_rows()})
    config = load_config({"model_name_or_path": str(tmp_path)}, purpose="read", environ={})
    assert find_untrained_end_markers(config, tokenizer, ["### end of all"]) == []
