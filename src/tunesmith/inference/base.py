"""Text generation as a contract: prompts of token ids in, completions of token ids out."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from tunesmith.config import GenerationConfig


class TextGenerator(Protocol):
    """Something that continues prompts, whatever runs the model."""

    def generate(self, prompts: Sequence[Sequence[int]], options: GenerationConfig) -> list[list[int]]:
        """Return one completion per prompt, in order.

        Args:
            prompts: Token ids of each prompt, of any lengths, none empty.
            options: How to choose tokens.

        Returns:
            The new tokens only, without the end marker that stopped them.
        """
        ...

    def stream(self, prompt: Sequence[int], options: GenerationConfig) -> Iterator[str]:
        """Yield the text of one completion in pieces, as it comes."""
        ...
