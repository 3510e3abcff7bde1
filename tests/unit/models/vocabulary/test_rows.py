import pytest
import torch

from tests.tiny.models import tiny_model
from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.config.model import ModelConfig
from tunesmith.errors import ModelError
from tunesmith.models.vocabulary import NewTokens, add_new_tokens, check_vocabulary, fit_vocabulary, read_new_tokens

MEANINGS = {"<|a|>": "Paris", "<|b|>": ""}


def grow(model, beginning="mean_init", *, vocabulary=420, rows=None, **settings):
    """Add tokens to a tokenizer and fit the model to it; return the note and the tokenizer."""
    tokenizer = byte_level_tokenizer()
    known = tokenizer.get_vocab()
    assert len(known) == vocabulary
    config = ModelConfig(**(settings or {"add_special_tokens": ("<|a|>", "<|b|>")}))
    add_new_tokens(tokenizer, config)
    note = fit_vocabulary(model, tokenizer, read_new_tokens(config), known, beginning, rows=rows)
    return note, tokenizer


@pytest.mark.parametrize("tied", [True, False])
def test_rows_are_padded_and_what_was_tied_stays_tied(tied):
    model = tiny_model(tied=tied)
    before = [end.weight.clone() for end in (model.get_input_embeddings(), model.get_output_embeddings())]
    note, tokenizer = grow(model)
    where = "shared by embedding and head" if tied else "in embedding and head"
    assert note == f"vocabulary: 2 new tokens, 420 -> 448 rows, {where}"
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    assert (ends[0].weight is ends[1].weight) == tied
    for end, old in zip(ends, before, strict=True):
        assert end.weight.shape == (448, 32)
        torch.testing.assert_close(end.weight[:420], old)
        mean = old.mean(dim=0)
        torch.testing.assert_close(end.weight[420], mean)  # the new tokens
        torch.testing.assert_close(end.weight[447], mean)  # padding
    assert model.config.vocab_size == 448
    check_vocabulary(model, tokenizer)


def test_noise_tells_new_tokens_apart():
    model = tiny_model()
    torch.manual_seed(0)
    grow(model, "noise_init")
    rows = model.get_input_embeddings().weight[420:422]
    mean = model.get_input_embeddings().weight[:420].mean(dim=0)
    assert (rows[0] - rows[1]).abs().max() > 0.1
    assert 0.5 < (rows - mean).std().item() * 32**0.5 < 1.5  # a deviation of 1 / sqrt(width)


def test_described_tokens_begin_as_the_mean_of_their_words():
    model = tiny_model()
    _, tokenizer = grow(model, "desc_init", new_special_tokens_config=MEANINGS)
    weight = model.get_input_embeddings().weight
    torch.testing.assert_close(weight[420], weight[tokenizer("Paris")["input_ids"]].mean(dim=0))
    torch.testing.assert_close(weight[421], weight[:420].mean(dim=0))  # nothing is said of it


def test_noise_is_added_to_descriptions():
    model = tiny_model()
    _, tokenizer = grow(model, "desc_init_w_noise", new_special_tokens_config=MEANINGS)
    weight = model.get_input_embeddings().weight
    assert (weight[420] - weight[tokenizer("Paris")["input_ids"]].mean(dim=0)).abs().max() > 0.05


def test_new_tokens_in_rows_that_are_there_already_begin_anew():
    """Models are shipped with more rows than tokens; new tokens come to lie in them."""
    model = tiny_model(vocab_size=448)
    note, _ = grow(model)
    assert note == "vocabulary: 2 new tokens, 448 -> 448 rows, shared by embedding and head"
    weight = model.get_input_embeddings().weight
    torch.testing.assert_close(weight[420], weight[:420].mean(dim=0))


def test_tokens_that_came_with_the_tokenizer_begin_anew_too():
    model = tiny_model(vocab_size=400)
    torch.manual_seed(0)
    note = fit_vocabulary(model, byte_level_tokenizer(), NewTokens(), {}, "noise_init")
    assert note == "vocabulary: 20 new tokens, 400 -> 448 rows, shared by embedding and head"
    weight = model.get_input_embeddings().weight
    assert (weight[400] - weight[419]).abs().max() > 0.1
    torch.testing.assert_close(weight[420], weight[:400].mean(dim=0))  # padding


def test_nothing_new_is_nothing_done():
    assert grow(tiny_model(), add_special_tokens=("<|im_end|>",))[0] == ""


def test_an_adapters_number_of_rows_is_taken():
    model = tiny_model()
    grow(model, rows=512)
    assert model.get_input_embeddings().weight.shape[0] == 512


def test_an_adapter_with_too_few_rows_is_refused():
    with pytest.raises(ModelError, match="trained with 420 rows, and the tokenizer has 422 tokens"):
        grow(tiny_model(), rows=420)


@pytest.mark.parametrize("end", ["embedding", "head"])
def test_what_would_not_load_again_is_not_saved(end):
    model = tiny_model(tied=False)
    module = model.get_input_embeddings() if end == "embedding" else model.get_output_embeddings()
    module.weight = torch.nn.Parameter(module.weight[:400])
    with pytest.raises(ModelError, match=f"the model's {end} has 400 rows and its configuration says 420"):
        check_vocabulary(model, byte_level_tokenizer())


def test_tokens_without_a_row_are_not_saved():
    tokenizer = byte_level_tokenizer()
    tokenizer.add_tokens(["a new word"])
    with pytest.raises(ModelError, match=r"has 421 tokens and the model 420 rows.*resize_vocab: true"):
        check_vocabulary(tiny_model(), tokenizer)
