"""Picks the collator of a batch layout."""

from collections.abc import Callable, Sequence
from typing import Literal

from tunesmith.data.batches import Batch, BatchLayout, Example
from tunesmith.data.collators.completions import FeedbackCollator, PairCollator
from tunesmith.data.collators.flat import FlatCollator
from tunesmith.data.collators.padded import PaddedCollator
from tunesmith.data.collators.shared import SharedPairCollator

Collator = Callable[[Sequence[Example | list[Example]]], Batch]

RowKind = Literal["single", "pairs", "feedback"]
"""What a row holds: one sequence, a prompt with two completions, or one with a rated and a mismatched completion."""


def build_collator(
    layout: BatchLayout,
    *,
    kind: RowKind = "single",
    pad_token_id: int,
    pad_to_multiple_of: int | None = None,
    ignore_pad_token_for_loss: bool = True,
    shares_prompts: bool = False,
) -> Collator:
    """Build the function that makes one batch of the rows of a micro-batch.

    Args:
        layout: `flat` or `padded`, see `data.batches.BatchLayout`.
        kind: What the rows hold.
        pad_token_id: Id that fills up shorter rows. It has no part in masks, so it may equal the end token.
        pad_to_multiple_of: Round the length of padded batches up to a multiple of this; only for `padded`.
        ignore_pad_token_for_loss: Give padding no label. Otherwise its label is `pad_token_id`: it is learnt.
        shares_prompts: Let the two completions of a pair share one prompt, in a flat batch.

    Raises:
        ValueError: `pad_to_multiple_of` is set for the flat layout, which has no padding; or prompts are to be shared
            by rows that are not pairs, or in the padded layout.
    """
    if shares_prompts:
        if kind != "pairs" or layout != "flat":
            raise ValueError(f"prompts are shared by pairs in the flat layout, not by {kind} rows in the {layout} one")
        return SharedPairCollator()
    if kind != "single":
        rows_to_batch = _build_row_collator(layout, pad_token_id, pad_to_multiple_of, ignore_pad_token_for_loss)
        return (PairCollator if kind == "pairs" else FeedbackCollator)(layout, rows_to_batch)
    return _build_row_collator(layout, pad_token_id, pad_to_multiple_of, ignore_pad_token_for_loss)


def _build_row_collator(
    layout: BatchLayout, pad_token_id: int, pad_to_multiple_of: int | None, ignore_pad_token_for_loss: bool
) -> PaddedCollator | FlatCollator:
    if layout == "padded":
        return PaddedCollator(pad_token_id, pad_to_multiple_of, ignore_pad_token_for_loss)
    if pad_to_multiple_of is not None:
        raise ValueError(
            f"pad_to_multiple_of is {pad_to_multiple_of}, but the flat layout has no padding: "
            "leave it out, or use the padded layout"
        )
    return FlatCollator()
