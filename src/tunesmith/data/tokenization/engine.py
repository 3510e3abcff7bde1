"""The engine of a fast tokenizer, set to encode texts whole."""

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase


def prepared_engine(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """Return the engine without truncation and padding, which files may switch on, and with the rule for special text.

    Call it before every use: the tokenizer sets its engine anew whenever it is called itself.
    """
    engine: Tokenizer = tokenizer.backend_tokenizer
    engine.no_truncation()
    engine.no_padding()
    engine.encode_special_tokens = tokenizer.split_special_tokens
    return engine
