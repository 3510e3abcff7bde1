import pytest
import torch

from tests.tiny.models import tiny_model
from tests.tiny.tokenizers import byte_level_tokenizer, metaspace_tokenizer
from tunesmith.errors import ModelError
from tunesmith.models.reward import (
    build_reward_model,
    is_reward_model,
    resolve_score_head,
    set_scoring_pad,
)
from tunesmith.models.segments import SEGMENTS


@pytest.fixture
def model():
    return build_reward_model(tiny_model("llama"), byte_level_tokenizer())


def slow_score(model, ids) -> torch.Tensor:
    """Run one text alone through the body and multiply by hand."""
    states = model.model(input_ids=torch.tensor([ids])).last_hidden_state
    return (states[0, -1] * model.score.weight[0]).sum()


TEXTS = [[5, 6, 7], [5, 6, 9, 2], [0, 0], [8]]  # one ends in the end marker, one in the padding token


def padded(pad):
    width = max(map(len, TEXTS))
    ids = torch.tensor([text + [pad] * (width - len(text)) for text in TEXTS])
    mask = torch.tensor([[1] * len(text) + [0] * (width - len(text)) for text in TEXTS])
    last = torch.tensor([row * width + len(text) - 1 for row, text in enumerate(TEXTS)])
    return {"input_ids": ids, "attention_mask": mask}, last


def flat():
    lengths = torch.tensor([len(text) for text in TEXTS])
    positions = torch.cat([torch.arange(length) for length in lengths])
    return {
        "input_ids": torch.tensor([[token for text in TEXTS for token in text]]),
        "position_ids": positions[None],
    }, lengths.cumsum(0) - 1


@pytest.mark.parametrize("layout", ["padded", "flat"])
def test_a_text_is_rated_at_its_last_token_in_every_layout(model, layout):
    model.set_attn_implementation(SEGMENTS)
    inputs, last = padded(417) if layout == "padded" else flat()
    scores = resolve_score_head(model).score(model, inputs, last)[0]
    expected = torch.stack([slow_score(model, text) for text in TEXTS])
    torch.testing.assert_close(scores, expected, atol=1e-6, rtol=1e-5)
    assert scores.requires_grad


def test_completions_behind_a_shared_prompt_are_rated_like_whole_texts(model):
    model.set_attn_implementation(SEGMENTS)
    inputs = {
        "input_ids": torch.tensor([[5, 6, 7, 9, 2]]),
        "position_ids": torch.tensor([[0, 1, 2, 2, 3]]),
        "branch_lengths": ((2, 1, 2),),
    }
    scores = resolve_score_head(model).score(model, inputs, torch.tensor([2, 4]))[0]
    torch.testing.assert_close(scores, torch.stack([slow_score(model, text) for text in TEXTS[:2]]))


@pytest.mark.parametrize("layout", ["padded", "flat"])
@pytest.mark.parametrize("is_reported", [True, False])
def test_routers_of_experts_are_balanced_as_in_the_language_model(layout, is_reported):
    settings = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}
    language_model = tiny_model("qwen3_moe", output_router_logits=is_reported, **settings)
    language_model.set_attn_implementation(SEGMENTS)
    inputs, last = padded(417) if layout == "padded" else flat()
    expected = language_model(**inputs, use_cache=False).get("aux_loss")
    model = build_reward_model(language_model, byte_level_tokenizer())
    found = resolve_score_head(model).score(model, inputs, last)[1].get("aux_loss")
    if is_reported:
        torch.testing.assert_close(found, expected)
        assert found.requires_grad
    else:
        assert found is None


def test_scores_are_exact_under_autocast(model):
    head = resolve_score_head(model)
    states = torch.randn(3, 32).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = head.module(states)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, states.float() @ model.score.weight.T)


def test_a_language_model_has_no_score_head():
    assert not is_reward_model(tiny_model("llama"))
    with pytest.raises(ModelError, match="LlamaForCausalLM has no score head"):
        resolve_score_head(tiny_model("llama"))


def test_a_model_that_does_more_than_its_head_is_found_out(model):
    inner = model.forward

    def shifted(**inputs):
        output = inner(**inputs)
        output.logits = output.logits + 1
        return output

    model.forward = shifted
    with pytest.raises(ModelError, match="is 1 away from its own scores"):
        resolve_score_head(model)


def test_a_new_head_is_drawn_from_the_seed_and_from_the_spread_of_the_family():
    def draw(seed):
        body = tiny_model("llama", initializer_range=0.5)
        torch.manual_seed(seed)
        return build_reward_model(body, byte_level_tokenizer()).score.weight

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert 0.3 < draw(1).std() < 0.7


@pytest.mark.parametrize(
    ("tokenizer", "markers", "expected"),
    [
        (byte_level_tokenizer(), (), "<|endoftext|>"),  # fit as it is
        (byte_level_tokenizer(), ("<|endoftext|>",), "<|endoftext|>"),  # none is left that ends nothing
        (metaspace_tokenizer(), (), "<unk>"),  # padded with its end token
    ],
)
def test_padding_ends_no_text(tokenizer, markers, expected):
    assert set_scoring_pad(tokenizer, markers) == expected
    assert tokenizer.pad_token == expected


def test_the_padding_token_stands_in_the_configuration():
    tokenizer = metaspace_tokenizer()
    set_scoring_pad(tokenizer)
    model = build_reward_model(tiny_model("llama", vocab_size=520), tokenizer)
    assert model.config.pad_token_id == tokenizer.unk_token_id == tokenizer.pad_token_id
