"""New words: tokens added to the tokenizer, and rows for them in the embedding and the output head.

tokens.py         what is added to the tokenizer, and what of it is new
rows.py           rows of the embedding and the head: made, begun, counted
ends.py           which modules these are, and that an adapter trains them
adapted.py        how many rows a saved adapter was trained with
"""

from tunesmith.models.vocabulary.adapted import find_adapted_rows
from tunesmith.models.vocabulary.ends import find_end_names, train_new_rows
from tunesmith.models.vocabulary.rows import check_vocabulary, fit_vocabulary
from tunesmith.models.vocabulary.tokens import NewTokens, add_new_tokens, read_new_tokens

__all__ = [
    "NewTokens",
    "add_new_tokens",
    "check_vocabulary",
    "find_adapted_rows",
    "find_end_names",
    "fit_vocabulary",
    "read_new_tokens",
    "train_new_rows",
]
