"""The encoder of a stage."""

from collections.abc import Sequence
from typing import Protocol

from transformers import PreTrainedTokenizerBase

from tunesmith.config.objective import COMPLETION_STAGES
from tunesmith.data.chat.template import ChatTemplate
from tunesmith.data.records import Dropped, Record
from tunesmith.data.tokenization.completions import CompletionEncoder
from tunesmith.data.tokenization.conversation import ConversationEncoder
from tunesmith.data.tokenization.document import DocumentEncoder
from tunesmith.data.tokenization.encoded import EncodedRow, EncodingOptions
from tunesmith.errors import TemplateError


class Encoder(Protocol):
    """Turns records into token ids and learnt positions. Implementations can be pickled."""

    def encode(self, records: Sequence[Record]) -> list[list[EncodedRow] | Dropped]:
        """Return for each record its rows (usually one), or why there are none. Large batches are fastest."""
        ...


def build_encoder(
    tokenizer: PreTrainedTokenizerBase, template: ChatTemplate | None, options: EncodingOptions
) -> Encoder:
    """Return the encoder for a stage: documents for `pt`, completions for `rm`, `dpo` and `kto`, else conversations.

    Raises:
        TemplateError: The stage needs a chat template and none is given.
        DataError: Documents are to be encoded and the tokenizer has no end token.
    """
    if options.stage == "pt":
        return DocumentEncoder(tokenizer, options)
    if template is None:
        raise TemplateError(f"stage {options.stage} needs a chat template, and none was given")
    if options.stage in COMPLETION_STAGES:
        return CompletionEncoder(tokenizer, template, options)
    return ConversationEncoder(tokenizer, template, options)
