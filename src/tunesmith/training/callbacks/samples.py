"""Shows what the model says while it learns: generated answers every so many steps, with a number to compare."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tunesmith.config import GenerationConfig
from tunesmith.evaluation.text_metrics import score_texts
from tunesmith.inference.base import TextGenerator

logger = logging.getLogger(__name__)

METRIC_WITH_ANSWERS = "sample_rouge-l"
METRIC_WITHOUT_ANSWERS = "sample_distinct_words"


@dataclass(frozen=True, slots=True)
class SamplePrompt:
    """One question that is asked again and again."""

    text: str
    """What is shown."""

    ids: Sequence[int]
    """What the model gets, chat template included."""

    answer: str | None = None
    """The expected answer, where one is known."""


class SamplePrinter(TrainerCallback):
    """Prints answers every N optimiser steps, greedily, so that they differ only by what was learnt.

    With expected answers the metric is ROUGE-L against them (0 to 100). Without, it is the number of different words
    over that of all words in the answers: it falls when a model begins to repeat itself.
    """

    def __init__(
        self,
        generator: TextGenerator,
        tokenizer: PreTrainedTokenizerBase,
        prompts: Sequence[SamplePrompt],
        *,
        every_steps: int,
        options: GenerationConfig,
    ) -> None:
        self._generator = generator
        self._tokenizer = tokenizer
        self._prompts = tuple(prompts)
        self._every_steps = every_steps
        self._options = options.greedy()
        self.history: list[tuple[int, float]] = []
        """Step and metric of every time samples were printed."""

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Print samples if it is time; one process does, the model is the same on all."""
        if state.is_world_process_zero and state.global_step % self._every_steps == 0:
            answers = self._generator.generate([prompt.ids for prompt in self._prompts], self._options)
            texts = [str(self._tokenizer.decode(ids, skip_special_tokens=True)) for ids in answers]
            metrics = measure_answers(self._prompts, texts)
            name, value = next(iter(metrics.items()))
            self.history.append((state.global_step, value))
            state.log_history.append({**metrics, "step": state.global_step})
            logger.info("%s", render_samples(state.global_step, self._prompts, texts, name, value))


def measure_answers(prompts: Sequence[SamplePrompt], texts: Sequence[str]) -> Mapping[str, float]:
    """Return the metric of a set of answers, by name."""
    pairs = [(text, prompt.answer) for text, prompt in zip(texts, prompts, strict=True) if prompt.answer is not None]
    if pairs:
        scores = score_texts([text for text, _ in pairs], [answer for _, answer in pairs])
        return {METRIC_WITH_ANSWERS: scores["rouge-l"]}
    words = [word for text in texts for word in text.split()]
    return {METRIC_WITHOUT_ANSWERS: len(set(words)) / len(words) if words else 0.0}


def render_samples(step: int, prompts: Sequence[SamplePrompt], texts: Sequence[str], metric: str, value: float) -> str:
    """Return the text that is shown."""
    lines = [f"samples after step {step} ({metric} {value:.2f})"]
    for prompt, text in zip(prompts, texts, strict=True):
        lines += [f"  > {_one_line(prompt.text)}", f"    {_one_line(text) or '(nothing)'}"]
    return "\n".join(lines)


def _one_line(text: str) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= 300 else joined[:297] + "..."
