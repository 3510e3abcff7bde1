import threading

import pytest
import torch
import transformers

from tests.tiny.models import tiny_model
from tests.tiny.tokenizers import byte_level_tokenizer
from tunesmith.config import GenerationConfig
from tunesmith.errors import ConfigError
from tunesmith.inference.local import LocalGenerator, resolve_stop_ids

GREEDY = GenerationConfig(do_sample=False, max_new_tokens=6)
PROMPTS = [[11, 12, 13, 14, 15, 16, 17], [21], [31, 32, 33]]


@pytest.fixture(scope="module")
def tokenizer():
    return byte_level_tokenizer()


@pytest.fixture
def model():
    return tiny_model(pad_token_id=None)


@pytest.fixture
def generator(model, tokenizer):
    return LocalGenerator(model, tokenizer)


def greedy_by_hand(model, prompt, count, stop_ids=()):
    """Slow and sure: the whole text through the model for every token."""
    ids = list(prompt)
    for _ in range(count):
        with torch.no_grad():
            token = int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax())
        if token in stop_ids:
            break
        ids.append(token)
    return ids[len(prompt) :]


def test_prompts_of_different_lengths_are_continued_as_if_alone(model, generator):
    expected = [greedy_by_hand(model, prompt, 6, generator.stop_ids) for prompt in PROMPTS]
    assert generator.generate(PROMPTS, GREEDY) == expected


def test_the_batch_size_changes_nothing(model, tokenizer):
    whole = LocalGenerator(model, tokenizer, batch_size=3).generate(PROMPTS, GREEDY)
    assert LocalGenerator(model, tokenizer, batch_size=1).generate(PROMPTS, GREEDY) == whole
    assert LocalGenerator(model, tokenizer, batch_size=2).generate(PROMPTS, GREEDY) == whole


def test_no_prompts_give_no_completions(generator):
    assert generator.generate([], GREEDY) == []


def test_an_empty_prompt_is_our_own_mistake(generator):
    with pytest.raises(AssertionError, match="prompt 1 is empty"):
        generator.generate([[5], []], GREEDY)


def test_a_completion_ends_before_its_end_marker(model, tokenizer):
    third = greedy_by_hand(model, PROMPTS[0], 3)[2]
    marker = tokenizer.convert_ids_to_tokens(third)
    generator = LocalGenerator(model, tokenizer)
    generator.stop_ids = (third,)
    expected = greedy_by_hand(model, PROMPTS[0], 6, stop_ids=(third,))
    assert generator.generate([PROMPTS[0]], GREEDY) == [expected]
    assert len(expected) <= 2, marker


def test_the_model_is_left_in_the_mode_it_was_in(model, generator):
    model.train()
    generator.generate([[5, 6]], GREEDY)
    assert model.training
    list(generator.stream([5, 6], GREEDY))
    assert model.training


def test_max_length_counts_the_prompt_where_max_new_tokens_is_0(generator):
    generator.stop_ids = ()
    options = GenerationConfig(do_sample=False, max_new_tokens=0, max_length=9)
    assert len(generator.generate([PROMPTS[0]], options)[0]) == 2  # 9 - 7
    too_short = GenerationConfig(do_sample=False, max_new_tokens=0, max_length=3)
    assert len(generator.generate([PROMPTS[0]], too_short)[0]) == 1


def test_sampling_follows_the_random_state_and_the_options(generator):
    options = GenerationConfig(do_sample=True, temperature=5.0, top_p=1.0, top_k=0, max_new_tokens=8)
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(generator.generate([PROMPTS[0]], options))
    assert draws[0] == draws[1] != draws[2]
    only_the_likeliest = GenerationConfig(do_sample=True, top_k=1, max_new_tokens=6)
    assert generator.generate(PROMPTS, only_the_likeliest) == generator.generate(PROMPTS, GREEDY)


def test_beam_search_finds_a_completion_that_is_at_least_as_likely(model, generator):
    generator.stop_ids = ()

    def log_probability(completion):
        ids = torch.tensor([PROMPTS[0] + completion])
        with torch.no_grad():
            scores = model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
        return sum(float(scores[len(PROMPTS[0]) - 1 + n, token]) for n, token in enumerate(completion))

    beams = GenerationConfig(do_sample=False, num_beams=4, max_new_tokens=4)
    greedy = GenerationConfig(do_sample=False, max_new_tokens=4)
    best, plain = (generator.generate([PROMPTS[0]], options)[0] for options in (beams, greedy))
    assert log_probability(best) >= log_probability(plain) - 1e-5


def test_greedy_options_keep_everything_but_the_choice():
    options = GenerationConfig(do_sample=True, num_beams=4, max_new_tokens=7)
    assert options.greedy() == GenerationConfig(do_sample=False, num_beams=1, max_new_tokens=7)


def test_a_stream_gives_the_text_of_the_batch(generator, tokenizer):
    expected = tokenizer.decode(generator.generate([PROMPTS[0]], GREEDY)[0], skip_special_tokens=True)
    assert "".join(generator.stream(PROMPTS[0], GREEDY)) == expected


def test_a_stream_refuses_beams(generator):
    with pytest.raises(ConfigError, match="num_beams is 2"):
        next(generator.stream([5], GenerationConfig(num_beams=2)))


def test_leaving_a_stream_early_stops_the_model(generator):
    generator.stop_ids = ()
    endless = GenerationConfig(do_sample=False, max_new_tokens=100_000)
    stream = generator.stream([5, 6], endless)
    next(stream)
    before = threading.active_count()
    stream.close()
    assert threading.active_count() == before - 1


def test_an_error_in_the_model_reaches_the_reader(generator, model):
    with pytest.raises(IndexError):
        list(generator.stream([10**6], GREEDY))  # no such token


def test_stop_tokens_come_from_tokenizer_model_and_template(model, tokenizer):
    model.generation_config = transformers.GenerationConfig(eos_token_id=[7, 9])
    # eos of the tokenizer is 2; <|endoftext|> is 0; "user and more" is several tokens and cannot stop anything
    markers = ("<|endoftext|>", "user and more")
    assert resolve_stop_ids(model, tokenizer, markers) == (0, 2, 7, 9)


@pytest.mark.parametrize(("named", "expected"), [(5, (2, 5)), (None, (2,))])
def test_a_model_may_name_one_stop_token_or_none(model, tokenizer, named, expected):
    model.generation_config = transformers.GenerationConfig(eos_token_id=named)
    assert resolve_stop_ids(model, tokenizer) == expected
