"""Settings of generated text: chat, samples and predictions."""

from dataclasses import dataclass, replace

from tunesmith.config.constraints import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """How answers are generated."""

    do_sample: bool = True
    """Draw each token at random by its probability; false always takes the likeliest one."""

    temperature: NonNegativeFloat = 0.95
    """Flattens (above 1) or sharpens (below 1) the probabilities. 0 is the same as `do_sample: false`."""

    top_p: Fraction = 0.7
    """Draw only from the likeliest tokens that together reach this probability."""

    top_k: NonNegativeInt = 50
    """Draw only from this many likeliest tokens; 0 puts no limit."""

    num_beams: PositiveInt = 1
    """Answers that are followed side by side (beam search). Time and memory grow with it."""

    max_length: PositiveInt = 1024
    """Largest number of tokens of prompt and answer together. Used only when `max_new_tokens` is 0."""

    max_new_tokens: NonNegativeInt = 1024
    """Largest number of tokens of an answer. 0 uses `max_length` instead."""

    repetition_penalty: PositiveFloat = 1.0
    """Above 1, makes tokens that were used before less likely. 1.05 to 1.2 stops loops of small models."""

    length_penalty: float = 1.0
    """With beam search, above 0 prefers longer answers and below 0 shorter ones."""

    skip_special_tokens: bool = True
    """Leave end markers and other special tokens out of the text that is shown and compared."""

    @property
    def draws_tokens(self) -> bool:
        """Whether tokens are drawn at random at all."""
        return self.do_sample and self.temperature > 0

    def greedy(self) -> "GenerationConfig":
        """Return the same settings with the likeliest token taken each time, so that runs can be compared."""
        return replace(self, do_sample=False, num_beams=1)
