"""Two templates side by side on one tokenizer: the text they print, and the ids and learnt tokens of their rows."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from tunesmith.data.chat.agreement import Difference, compare
from tunesmith.data.chat.template import ChatTemplate
from tunesmith.data.records import Conversation, Dropped
from tunesmith.data.tokenization.conversation import ConversationEncoder
from tunesmith.data.tokenization.encoded import EncodedRow, EncodingOptions

_NO_LIMIT = 1 << 30


class Comparison(NamedTuple):
    """What two templates make of one conversation."""

    sample: str
    text: Difference | None
    """Where they first print something else."""

    same_ids: bool
    """Whether their rows have the same ids, and the same of them are learnt."""


def compare_templates(
    tokenizer: PreTrainedTokenizerBase,
    left: ChatTemplate,
    right: ChatTemplate,
    samples: Mapping[str, Conversation],
) -> list[Comparison]:
    """Return for each conversation what two templates make of it, up to the last end marker."""
    options = EncodingOptions("sft", _NO_LIMIT)
    encoders = [ConversationEncoder(tokenizer, template, options) for template in (left, right)]
    ids = [[_learnt_rows(rows) for rows in encoder.encode(list(samples.values()))] for encoder in encoders]
    return [
        Comparison(name, compare(left, right, name, conversation), one == other)
        for (name, conversation), one, other in zip(samples.items(), *ids, strict=True)
    ]


def _learnt_rows(rows: Sequence[EncodedRow] | Dropped) -> list[tuple[list[int], list[int]]]:
    """Return ids up to the last learnt one, and the learnt ranges, of each row; no rows where there are none."""
    if isinstance(rows, Dropped):
        return []
    return [(row.input_ids[: row.trained_spans[-1]].tolist(), row.trained_spans.tolist()) for row in rows]


def learnt_texts(
    tokenizer: PreTrainedTokenizerBase, template: ChatTemplate, conversation: Conversation
) -> list[str] | Dropped:
    """Return the text of what is learnt of a conversation, answer by answer, or why there is nothing."""
    (rows,) = ConversationEncoder(tokenizer, template, EncodingOptions("sft", _NO_LIMIT)).encode([conversation])
    if isinstance(rows, Dropped):
        return rows
    spans = chain.from_iterable([(row, start, end) for start, end in row.trained_spans.reshape(-1, 2)] for row in rows)
    return [tokenizer.decode(row.input_ids[start:end], skip_special_tokens=False) for row, start, end in spans]
