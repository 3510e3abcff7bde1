"""Conversations to ids and learnt positions."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from tunesmith.data.chat.render import RenderingRefusedError
from tunesmith.data.chat.template import ChatTemplate
from tunesmith.data.records import Conversation, Dropped, Message, Record
from tunesmith.data.tokenization.encoded import EncodedRow, EncodingOptions
from tunesmith.data.tokenization.masks import build_row, learnt_pieces
from tunesmith.data.tokenization.pieces import Ids, PieceEncoder, build_piece_encoder
from tunesmith.data.tokenization.truncation import Truncator

_NOTHING_TO_LEARN = Dropped("no answer to learn from")
_PROBE_TEXTS = ("Paris.", " $46", "\n- a\n", "4", "量子", "🙂", "```py", "", "a  ", "(x) ")


class _Row(NamedTuple):
    """One row of a conversation, rendered."""

    conversation: Conversation
    pieces: list[str]
    only_last: bool
    """Whether this row is there for its last answer alone."""


class ConversationEncoder:
    """Renders, tokenises and cuts conversations. Instances can be pickled."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template: ChatTemplate, options: EncodingOptions) -> None:
        self._template = template
        self._options = options
        self._pieces: PieceEncoder = build_piece_encoder(tokenizer, probe_rows(template))
        self._truncator = Truncator(template, self._pieces, options)

    def encode(self, records: Sequence[Record]) -> list[list[EncodedRow] | Dropped]:
        """Return for each conversation its rows, or why there are none.

        One conversation gives several rows where the template prints earlier answers differently from the last.
        """
        plans = [self._render(record) for record in records]
        rows = list(chain.from_iterable(plan for plan in plans if not isinstance(plan, Dropped)))
        encoded = iter(self._pieces.encode([row.pieces for row in rows]))
        return [
            plan if isinstance(plan, Dropped) else self._finish([self._fit(row, next(encoded)) for row in plan])
            for plan in plans
        ]

    def _render(self, record: Record) -> list[_Row] | Dropped:
        if not isinstance(record, Conversation):
            raise TypeError("a conversation encoder was given a record that is not a conversation")
        only_last = self._options.mask_history
        try:
            rendered = self._template.render_segments(record, only_last=only_last)
        except RenderingRefusedError as refusal:
            return Dropped(refusal.reason, refusal.detail)
        messages = record.messages
        if len(rendered) == 1:
            pieces = learnt_pieces(rendered[0], messages, only_last=only_last)
            return [_Row(record, pieces, only_last)] if len(pieces) > 1 else _NOTHING_TO_LEARN
        rows = [
            _Row(Conversation(messages[: row[-1].message_index + 1], record.tools), pieces, True)
            for row in rendered
            if len(pieces := learnt_pieces(row, messages, only_last=False)) > 1
        ]
        return rows or _NOTHING_TO_LEARN

    def _fit(self, row: _Row, ids: list[Ids]) -> EncodedRow | Dropped:
        length = sum(map(len, ids))
        if length > self._options.cutoff_len:
            if length - len(ids[-1]) > self._options.cutoff_len:
                return self._truncator.fit(row.conversation, only_last=row.only_last)
            ids = [*ids[:-1], ids[-1][:0]]  # only what follows the last end marker is too much: nothing is lost
        return build_row(ids, train_on_prompt=self._options.train_on_prompt)

    @staticmethod
    def _finish(rows: list[EncodedRow | Dropped]) -> list[EncodedRow] | Dropped:
        """Return the rows that can be used; an answer whose row cannot be counts as a dropped turn."""
        kept = [row for row in rows if not isinstance(row, Dropped)]
        if not kept:
            return next(row for row in rows if isinstance(row, Dropped))
        if len(kept) < len(rows):
            kept[0] = kept[0]._replace(truncation=kept[0].truncation | {"turns_dropped"})
        return kept


def probe_rows(template: ChatTemplate) -> list[list[str]]:
    """Return pieces of a few two-turn conversations, to compare ways of tokenising on."""
    rows = []
    for text in _PROBE_TEXTS:
        turns = [("user", text), ("assistant", text), ("user", text), ("assistant", text)]
        messages = tuple(Message(role, content) for role, content in turns)  # type: ignore[arg-type]
        try:
            rendered = template.render_segments(Conversation(messages))
        except RenderingRefusedError:
            continue
        rows += [learnt_pieces(row, messages, only_last=False) for row in rendered]
    return rows
