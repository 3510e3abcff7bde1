"""Making a conversation fit `cutoff_len` without breaking its shape.

What may go: whole turns at one end of the conversation, the tail of a question or tool result, the tail of the last
answer. What stays: system message, role headers, the words before a cut, and at least one learnt token. An answer
that is cut loses its end marker, for nothing ends in the middle of a sentence.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tunesmith.data.chat.render import RenderingRefusedError
from tunesmith.data.chat.template import ChatTemplate
from tunesmith.data.records import Conversation, Dropped, Message
from tunesmith.data.tokenization.encoded import EncodedRow, EncodingOptions, Truncation
from tunesmith.data.tokenization.masks import build_row, learnt_pieces
from tunesmith.data.tokenization.pieces import Ids, Offsets, PieceEncoder, PieceIds

TOO_LONG = Dropped("longer than cutoff_len even when cut")
_PLACEHOLDER = "\ue000"
"""Stands for a text to find where the template prints it; a character of no language."""


class _Budget(NamedTuple):
    """Numbers of tokens to keep."""

    prompt: int
    answer: int


def share_budget(prompt: int, answer: int, cutoff: int) -> _Budget:
    """Return how many tokens of prompt and answer are kept when both together are more than `cutoff`.

    The rule of LLaMA-Factory: a short side (less than half of the cutoff) stays whole, otherwise both shrink in
    proportion.

    Args:
        prompt: Number of prompt tokens.
        answer: Number of answer tokens.
        cutoff: Number of tokens that may be kept.
    """
    if answer * 2 < cutoff:
        most_answer = cutoff
    elif prompt * 2 < cutoff:
        most_answer = cutoff - prompt
    else:
        most_answer = cutoff * answer // (prompt + answer)
    kept_answer = min(most_answer, answer)
    return _Budget(min(max(cutoff - kept_answer, 0), prompt), kept_answer)


class Truncator:
    """Makes conversations fit by the policy of this module."""

    def __init__(self, template: ChatTemplate, pieces: PieceEncoder, options: EncodingOptions) -> None:
        self._template = template
        self._pieces = pieces
        self._options = options

    def fit(self, conversation: Conversation, *, only_last: bool) -> EncodedRow | Dropped:
        """Return the row of a conversation that is too long.

        Args:
            conversation: The conversation; rendered whole it has more than `cutoff_len` tokens.
            only_last: The row is there for its last answer: the first turns are dropped. Otherwise the last ones.
        """
        try:
            if only_last:
                return self._fit_end(conversation)
            return self._fit_start(conversation)
        except RenderingRefusedError as refusal:
            return Dropped(refusal.reason, refusal.detail)

    def _fit_end(self, conversation: Conversation) -> EncodedRow | Dropped:
        """Keep as many of the last turns as fit; cut inside the very last if it alone is too long."""
        head, turns = _split_turns(conversation.messages, new_turn="user")
        least, most = 1, len(turns) - 1  # all of them are known to be too many
        best: list[Ids] | None = None
        while least <= most:
            middle = (least + most) // 2
            ids = self._whole(_joined(conversation, head, turns[-middle:]), only_last=True)
            if ids is None:
                most = middle - 1
            else:
                best, least = ids, middle + 1
        if best is not None:
            return self._build(best, frozenset({"turns_dropped"}))
        lost: set[Truncation] = {"turns_dropped"} if len(turns) > 1 else set()
        return self._cut(_joined(conversation, head, turns[-1:]), lost, only_last=True) or TOO_LONG

    def _fit_start(self, conversation: Conversation) -> EncodedRow | Dropped:
        """Keep the first turns that fit and what fits of the next one."""
        head, turns = _split_turns(conversation.messages, new_turn=None)
        least, most = 0, len(turns) - 1
        best: list[Ids] | None = None
        while least < most:  # the largest number of whole turns that fit is in [least, most]
            middle = (least + most + 1) // 2
            ids = self._whole(_joined(conversation, head, turns[:middle]), only_last=False)
            if ids is None:
                most = middle - 1
            else:
                best, least = ids, middle
        lost: set[Truncation] = {"turns_dropped"} if least + 1 < len(turns) else set()
        row = None
        if turns[least][-1].trained is not False:
            row = self._cut(_joined(conversation, head, turns[: least + 1]), lost, only_last=False)
        if row is not None:
            return row
        if best is not None and len(best) > 1:
            return self._build(best, frozenset({"turns_dropped"}))
        return TOO_LONG

    def _render(self, conversation: Conversation, *, only_last: bool) -> list[str]:
        row = self._template.render_segments(conversation, only_last=only_last)[-1]
        return learnt_pieces(row, conversation.messages, only_last=only_last)

    def _whole(self, conversation: Conversation, *, only_last: bool) -> list[Ids] | None:
        """Return the ids of all pieces up to the last end marker, or nothing where they are too many."""
        pieces = self._render(conversation, only_last=only_last)
        ids = self._pieces.encode([pieces])[0]
        if sum(map(len, ids[:-1])) > self._options.cutoff_len:
            return None
        fits = sum(map(len, ids)) <= self._options.cutoff_len
        return ids if fits else [*ids[:-1], ids[-1][:0]]

    def _cut(self, conversation: Conversation, lost: set[Truncation], *, only_last: bool) -> EncodedRow | None:
        """Cut inside the last question and the last answer; nothing where their shape alone is too long."""
        pieces = self._render(conversation, only_last=only_last)
        if len(pieces) == 1:
            return None
        *before, prompt, answer, _ = self._pieces.locate(pieces)
        room = self._options.cutoff_len - sum(len(piece.ids) for piece in before)
        start = sum(map(len, pieces[: len(before)]))
        ranges = self._cuttable(conversation, pieces, start, prompt, only_last=only_last)
        fixed = len(prompt.ids) - sum(last - first for first, last in ranges)
        budget = share_budget(len(prompt.ids), len(answer.ids), room)
        budget = _Budget(max(budget.prompt, fixed), min(budget.answer, room - max(budget.prompt, fixed)))
        if budget.answer < 1:
            return None
        kept_prompt = _cut_ranges(prompt, ranges, len(prompt.ids) - budget.prompt)
        answer_room = min(len(answer.ids), room - len(kept_prompt))
        kept_answer = whole_characters(answer.offsets, answer_room) or answer_room
        losses = set(lost)
        if len(kept_prompt) < len(prompt.ids):
            losses.add("prompt_cut")
        if kept_answer < len(answer.ids):
            losses.add("end_marker_lost")
            marker_start = len(pieces[-2]) - len(self._template.ending.marker)
            if answer.offsets[kept_answer][0] < marker_start:
                losses.add("answer_cut")
        ids = [*(piece.ids for piece in before), kept_prompt, answer.ids[:kept_answer], []]
        return self._build([np.array(piece, dtype=np.int32) for piece in ids], frozenset(losses))

    def _cuttable(
        self, conversation: Conversation, pieces: Sequence[str], start: int, prompt: PieceIds, *, only_last: bool
    ) -> list[tuple[int, int]]:
        """Return the half-open token ranges of questions and tool results inside the last prompt piece, ascending."""
        text = "".join(pieces)
        ranges = []
        for place, message in enumerate(conversation.messages):
            if message.role not in ("user", "tool") or not message.content:
                continue
            found = self._printed_at(conversation, place, text, only_last=only_last)
            if found is None or found[0] < start:
                continue
            first, last = _token_range(prompt.offsets, found[0] - start, found[1] - start)
            if first < last:
                ranges.append((first, last))
        return ranges

    def _printed_at(
        self, conversation: Conversation, place: int, text: str, *, only_last: bool
    ) -> tuple[int, int] | None:
        """Return the characters of the rendered text that come from the content of a message."""
        if _PLACEHOLDER in text:
            return None
        messages = list(conversation.messages)
        messages[place] = replace(messages[place], content=_PLACEHOLDER)
        pieces = self._render(Conversation(tuple(messages), conversation.tools), only_last=only_last)
        other = "".join(pieces)
        before, found, after = other.partition(_PLACEHOLDER)
        if not found or not text.startswith(before) or not text.endswith(after):
            return None
        return len(before), len(text) - len(after)

    def _build(self, ids: Sequence[Ids], lost: frozenset[Truncation]) -> EncodedRow:
        return build_row(ids, train_on_prompt=self._options.train_on_prompt, truncation=lost)


def _split_turns(messages: Sequence[Message], new_turn: str | None) -> tuple[list[Message], list[list[Message]]]:
    """Return the system messages at the start, and the turns.

    Args:
        messages: The conversation.
        new_turn: Role that opens a turn. Nothing: every answer closes one, so that a tool result opens the next.
    """
    head: list[Message] = []
    turns: list[list[Message]] = []
    closed = True
    for message in messages:
        if message.role == "system" and not turns:
            head.append(message)
            continue
        if not turns or (closed if new_turn is None else message.role == new_turn):
            turns.append([])
        turns[-1].append(message)
        closed = message.role == "assistant"
    return head, turns


def _joined(conversation: Conversation, head: Sequence[Message], turns: Sequence[Sequence[Message]]) -> Conversation:
    return Conversation((*head, *(message for turn in turns for message in turn)), conversation.tools)


def _token_range(offsets: Offsets, start: int, end: int) -> tuple[int, int]:
    """Return the half-open range of tokens that lie wholly inside a range of characters."""
    inside = [place for place, (first, last) in enumerate(offsets) if first >= start and last <= end and first < last]
    return (inside[0], inside[-1] + 1) if inside else (0, 0)


def whole_characters(offsets: Offsets, count: int) -> int:
    """Return the largest number of tokens up to `count` that leaves no character with half of its bytes; maybe 0."""
    kept = count
    while 0 < kept < len(offsets) and offsets[kept][0] < offsets[kept - 1][1]:
        kept -= 1
    return kept


def _cut_ranges(piece: PieceIds, ranges: Sequence[tuple[int, int]], surplus: int) -> list[int]:
    """Return the ids without at least `surplus` tokens from the tails of ranges, the last range first."""
    ids = piece.ids
    for first, last in reversed(ranges):
        if surplus <= 0:
            break
        keep = max(last - first - surplus, 0)
        if keep > 0:
            keep = whole_characters(piece.offsets[first:last], keep)
        surplus -= last - first - keep
        ids = ids[: first + keep] + ids[last:]
    return ids
