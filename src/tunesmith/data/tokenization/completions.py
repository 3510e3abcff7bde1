"""Prompts with completions to ids: pairs of which one is preferred, and single completions with a verdict.

The prompt is tokenised as serving sends it and stands once in the row. Where a row is too long, the prompt is cut as
that of a conversation is, for the longer completion, and both completions keep the very same prompt tokens.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from tunesmith.data.chat.render import RenderingRefusedError
from tunesmith.data.chat.template import ChatTemplate
from tunesmith.data.records import Conversation, Dropped, Feedback, Message, Preference, Record
from tunesmith.data.tokenization.conversation import probe_rows
from tunesmith.data.tokenization.encoded import EncodedRow, EncodingOptions, Truncation
from tunesmith.data.tokenization.masks import learnt_pieces, trained_spans
from tunesmith.data.tokenization.pieces import Ids, PieceEncoder, build_piece_encoder
from tunesmith.data.tokenization.truncation import TOO_LONG, Truncator, whole_characters

SAME = Dropped("chosen and rejected are the same")
SAME_CUT = Dropped("chosen and rejected are the same once cut to cutoff_len")
_NO_PROMPT = Dropped("the prompt is empty")
_NOTHING_TO_SCORE = Dropped("no completion to learn from")
_SEVERAL_ROWS = Dropped("a completion of several answers, which the chat template prints one by one")
_OTHER_PROMPT = Dropped("the prompt looks different before each completion")


class _Side(NamedTuple):
    """A prompt with one completion, rendered."""

    conversation: Conversation
    pieces: list[str]
    """`[prompt, answer, text between, answer ..., rest]`: what stands at an odd place is learnt."""

    is_single: bool
    """Whether the completion is one message, the usual case."""


class _Tokens(NamedTuple):
    """A completion in ids."""

    ids: Ids
    spans: list[int]
    """Learnt ranges, counted from the first token of the completion."""


class CompletionEncoder:
    """Renders, tokenises and cuts pairs and rated completions. Instances can be pickled."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template: ChatTemplate, options: EncodingOptions) -> None:
        self._template = template
        self._cutoff_len = options.cutoff_len
        self._pieces: PieceEncoder = build_piece_encoder(tokenizer, probe_rows(template))
        self._truncator = Truncator(template, self._pieces, options)

    def encode(self, records: Sequence[Record]) -> list[list[EncodedRow] | Dropped]:
        """Return for each record its row, or why there is none."""
        rated = [record for record in records if isinstance(record, Preference | Feedback)]
        if len(rated) != len(records):
            raise TypeError("a completion encoder was given records without completions")
        plans = [self._render(record) for record in rated]
        texts = [side.pieces for plan in plans if not isinstance(plan, Dropped) for side in plan]
        encoded = iter(self._pieces.encode(texts))
        result: list[list[EncodedRow] | Dropped] = []
        for record, plan in zip(rated, plans, strict=True):
            row = plan if isinstance(plan, Dropped) else self._build(record, plan, [next(encoded) for _ in plan])
            result.append(row if isinstance(row, Dropped) else [row])
        return result

    def _render(self, record: Preference | Feedback) -> list[_Side] | Dropped:
        both = (record.chosen, record.rejected) if isinstance(record, Preference) else (record.completion,)
        sides = []
        for completion in both:
            conversation = Conversation((*record.prompt, *completion), record.tools)
            try:
                side = self._render_side(conversation, completion)
            except RenderingRefusedError as refusal:
                return Dropped(refusal.reason, refusal.detail)
            if isinstance(side, Dropped):
                return side
            sides.append(side)
        if not sides[0].pieces[0]:
            return _NO_PROMPT
        return _OTHER_PROMPT if sides[-1].pieces[0] != sides[0].pieces[0] else sides

    def _render_side(self, conversation: Conversation, completion: Sequence[Message]) -> _Side | Dropped:
        is_single = len(completion) == 1
        rows = self._template.render_segments(conversation, only_last=is_single)
        if len(rows) > 1:
            return _SEVERAL_ROWS
        first = len(conversation.messages) - len(completion)
        segments = [segment._replace(trained=segment.trained and segment.message_index >= first) for segment in rows[0]]
        pieces = learnt_pieces(segments, conversation.messages, only_last=False)
        return _Side(conversation, pieces, is_single) if len(pieces) > 1 else _NOTHING_TO_SCORE

    def _build(self, record: Preference | Feedback, sides: list[_Side], ids: list[list[Ids]]) -> EncodedRow | Dropped:
        if not all(np.array_equal(pieces[0], ids[0][0]) for pieces in ids):
            return _OTHER_PROMPT
        prompt, lost = ids[0][0], frozenset[Truncation]()
        # What follows the last end marker is never learnt, and nothing comes after it.
        completions = [_Tokens(np.concatenate(pieces[1:-1]), trained_spans([[], *pieces[1:-1]])) for pieces in ids]
        if _are_same(completions):
            return SAME
        if len(prompt) + max(len(completion.ids) for completion in completions) > self._cutoff_len:
            cut = self._cut(prompt, sides, completions)
            if isinstance(cut, Dropped):
                return cut
            prompt, completions, lost = cut
            if _are_same(completions):
                return SAME_CUT
        return _join(record, prompt, completions, lost)

    def _cut(
        self, prompt: Ids, sides: list[_Side], completions: list[_Tokens]
    ) -> tuple[Ids, list[_Tokens], frozenset[Truncation]] | Dropped:
        """Make room in the prompt for the longer completion, then cut what of either is still too long."""
        longer = max(range(len(sides)), key=lambda place: len(completions[place].ids))
        lost: set[Truncation] = set()
        if sides[longer].is_single:
            fitted = self._truncator.fit(sides[longer].conversation, only_last=True)
            if isinstance(fitted, Dropped):
                return fitted
            prompt = fitted.input_ids[: fitted.trained_spans[0]]
            lost.update(fitted.truncation & {"prompt_cut", "turns_dropped"})
        room = self._cutoff_len - len(prompt)
        if room < 1:
            return TOO_LONG
        kept = []
        for side, completion in zip(sides, completions, strict=True):
            if len(completion.ids) > room:
                completion, losses = self._shorten(side, room)  # noqa: PLW2901 - the same completion, cut
                lost.update(losses)
            kept.append(completion)
        return prompt, kept, frozenset(lost)

    def _shorten(self, side: _Side, room: int) -> tuple[_Tokens, set[Truncation]]:
        """Return as much of a completion as there is room for, and what it lost."""
        located = self._pieces.locate(side.pieces)[1:-1]
        kept: list[list[int]] = []
        losses: set[Truncation] = {"end_marker_lost"}
        for place, piece in enumerate(located):
            if len(piece.ids) <= room:
                kept.append(piece.ids)
                room -= len(piece.ids)
                continue
            # Half a character is kept only where there would be nothing at all.
            count = whole_characters(piece.offsets, room) or (0 if kept else room)
            kept.append(piece.ids[:count])
            marker_start = len(side.pieces[-2]) - len(self._template.ending.marker)
            if place < len(located) - 1 or piece.offsets[count][0] < marker_start:
                losses.add("answer_cut")
            break
        ids = np.array(list(chain.from_iterable(kept)), dtype=np.int32)
        return _Tokens(ids, trained_spans([[], *kept])), losses


def _are_same(completions: Sequence[_Tokens]) -> bool:
    """Return whether there are two completions, with the same ids of which the same are learnt."""
    if len(completions) < 2:
        return False
    one, other = completions
    return np.array_equal(one.ids, other.ids) and one.spans == other.spans


def _join(
    record: Preference | Feedback, prompt: Ids, completions: list[_Tokens], lost: frozenset[Truncation]
) -> EncodedRow:
    """Return the prompt with all its completions as one row."""
    ends, spans = [len(prompt)], list[int]()
    for completion in completions:
        spans += [border + ends[-1] for border in completion.spans]
        ends.append(ends[-1] + len(completion.ids))
    signal = record.margin if isinstance(record, Preference) else float(record.is_desirable)
    return EncodedRow(
        np.concatenate([prompt, *(completion.ids for completion in completions)]),
        np.array(spans, dtype=np.int32),
        lost,
        prompt_end=ends[0],
        chosen_end=ends[1],
        signal=signal,
    )
