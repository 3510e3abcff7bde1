"""The token a reward model is padded with.

transformers' sequence classifiers take the score at the last token that is not the padding token. Many tokenizers pad
with the token that ends an answer, and the score of a whole answer would then be taken one token early. So a reward
model gets a padding token that no text ends in, written both to its tokenizer and to its configuration.
"""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase


def set_scoring_pad(tokenizer: PreTrainedTokenizerBase, end_markers: Sequence[str] = ()) -> str:
    """Choose a padding token that ends no text, set it, and return it; the one that is set stays where it is fit.

    A tokenizer without another special token keeps its own; transformers' class then rates whole answers one token
    early, and this program, which knows where texts end, does not.

    Args:
        tokenizer: Of the model; changed.
        end_markers: What ends an answer besides the tokenizer's own end token.
    """
    unfit = {tokenizer.eos_token, tokenizer.bos_token, *end_markers}
    current = tokenizer.pad_token
    candidates = [current, tokenizer.unk_token, *tokenizer.all_special_tokens]
    chosen = next((token for token in candidates if token is not None and token not in unfit), current)
    if chosen != current:
        tokenizer.pad_token = chosen
    return str(chosen)
