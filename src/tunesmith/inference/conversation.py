"""A conversation with a model: what was said so far, and the next answer in pieces."""

from collections.abc import Iterator

from transformers import PreTrainedTokenizerBase

from tunesmith.config import GenerationConfig
from tunesmith.data.chat import ChatTemplate
from tunesmith.data.records import Message
from tunesmith.data.tokenization import encode_prompt
from tunesmith.inference.base import TextGenerator


class ChatSession:
    """Keeps the turns of one conversation and renders them with the template that the model was trained with."""

    def __init__(
        self,
        generator: TextGenerator,
        tokenizer: PreTrainedTokenizerBase,
        template: ChatTemplate,
        options: GenerationConfig,
        *,
        system: str | None = None,
    ) -> None:
        """Start a conversation.

        Args:
            generator: What continues prompts.
            tokenizer: Tokenizer of the model.
            template: The model's chat template.
            options: How answers are chosen.
            system: What the model is told before the first turn; `None` leaves it to the template.
        """
        self.generator = generator
        self.tokenizer = tokenizer
        self.template = template
        self.options = options
        self.system = system
        self.messages: list[Message] = []
        self.clear()

    def clear(self) -> None:
        """Forget all turns; the system message stays."""
        self.messages = [Message("system", self.system)] if self.system else []

    def answer(self, text: str) -> Iterator[str]:
        """Yield the answer to a question in pieces, then remember both.

        An answer that was not read to its end is remembered as far as it was read.
        """
        question = Message("user", text)
        pieces: list[str] = []
        try:
            for piece in self.generator.stream(self.prompt_ids([*self.messages, question]), self.options):
                pieces.append(piece)
                yield piece
        finally:
            if pieces:
                self.messages += [question, Message("assistant", "".join(pieces))]

    def prompt_ids(self, messages: list[Message]) -> list[int]:
        """Return the token ids that ask the model for the next answer."""
        return encode_prompt(self.tokenizer, self.template, messages)
