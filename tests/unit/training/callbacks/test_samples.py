import logging

import pytest
from transformers import TrainerControl, TrainerState

from tunesmith.config import GenerationConfig
from tunesmith.training.callbacks.samples import SamplePrinter, SamplePrompt, measure_answers, render_samples


class EchoGenerator:
    """Answers with the prompt, and remembers how it was asked."""

    def __init__(self):
        self.options = []

    def generate(self, prompts, options):
        self.options.append(options)
        return [list(prompt) for prompt in prompts]

    def stream(self, prompt, options):
        raise NotImplementedError


class LetterTokenizer:
    """One token per letter."""

    def decode(self, ids, skip_special_tokens=False):
        return "".join(chr(number) for number in ids)


def letters(text):
    return [ord(letter) for letter in text]


def printer(prompts, every_steps=2):
    generator = EchoGenerator()
    options = GenerationConfig(do_sample=True, max_new_tokens=5)
    return SamplePrinter(generator, LetterTokenizer(), prompts, every_steps=every_steps, options=options), generator


def test_samples_come_every_n_steps_and_greedily(caplog):
    callback, generator = printer([SamplePrompt("Say it.", letters("a b a"))])
    state = TrainerState(is_world_process_zero=True)
    with caplog.at_level(logging.INFO, logger="tunesmith"):
        for step in range(1, 6):
            state.global_step = step
            callback.on_step_end(None, state, TrainerControl())
    assert [step for step, _ in callback.history] == [2, 4]
    assert not any(options.do_sample for options in generator.options)
    assert "samples after step 4" in caplog.text
    assert "    a b a" in caplog.text
    assert state.log_history[0] == {"sample_distinct_words": pytest.approx(2 / 3), "step": 2}


def test_known_answers_are_scored(caplog):
    prompts = [SamplePrompt("one", letters("same words"), "same words"), SamplePrompt("two", letters("x"), "y")]
    metrics = measure_answers(prompts, ["same words", "x"])
    assert metrics == {"sample_rouge-l": pytest.approx(50.0)}


def test_nothing_said_counts_as_no_words():
    assert measure_answers([SamplePrompt("one", [1])], [""]) == {"sample_distinct_words": 0.0}


def test_long_and_empty_answers_are_readable():
    prompts = [SamplePrompt("a\nb", [1]), SamplePrompt("c", [1])]
    text = render_samples(3, prompts, ["word " * 200, ""], "sample_rouge-l", 1.0)
    assert "  > a b" in text
    assert "(nothing)" in text
    assert max(map(len, text.splitlines())) <= 304


def test_other_processes_print_nothing(caplog):
    callback, generator = printer([SamplePrompt("one", letters("a"))])
    callback.on_step_end(None, TrainerState(global_step=2, is_world_process_zero=False), TrainerControl())
    assert generator.options == []
