"""Text generation as a contract: prompts of token ids in, completions of token ids out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """How completions are chosen. The defaults are those of the settings of the same names."""

    do_sample: bool = True
    """Draw tokens at random; otherwise take the most likely one each time, and the three below have no effect."""

    temperature: float = 0.95
    """Above 1 flattens the choice, below 1 sharpens it."""

    top_p: float = 0.7
    """Draw from the fewest tokens whose probabilities add up to this."""

    top_k: int = 50
    """Draw from this many most likely tokens; 0 for all."""

    num_beams: int = 1
    """Completions followed at once by beam search; 1 for none. A stream cannot use it."""

    max_new_tokens: int = 1024
    """Longest completion, in tokens; 0 leaves it to `max_length`."""

    max_length: int = 1024
    """Longest prompt and completion together, in tokens. Used only where `max_new_tokens` is 0."""

    repetition_penalty: float = 1.0
    """Above 1 makes tokens that are already in the text less likely."""

    length_penalty: float = 1.0
    """Beam search: above 0 favours longer completions."""

    skip_special_tokens: bool = True
    """Leave special tokens out of the text that is shown or scored."""

    def greedy(self) -> "GenerationOptions":
        """Return the same options with the most likely token taken each time, so that runs can be compared."""
        return replace(self, do_sample=False, num_beams=1)


class TextGenerator(Protocol):
    """Something that continues prompts, whatever runs the model."""

    def generate(self, prompts: Sequence[Sequence[int]], options: GenerationOptions) -> list[list[int]]:
        """Return one completion per prompt, in order.

        Args:
            prompts: Token ids of each prompt, of any lengths, none empty.
            options: How to choose tokens.

        Returns:
            The new tokens only, without the end marker that stopped them.
        """
        ...

    def stream(self, prompt: Sequence[int], options: GenerationOptions) -> Iterator[str]:
        """Yield the text of one completion in pieces, as it comes."""
        ...
