"""Picks the collator of a batch layout."""

from collections.abc import Callable, Sequence

from tunesmith.data.batches import Batch, BatchLayout, Example
from tunesmith.data.collators.flat import FlatCollator
from tunesmith.data.collators.padded import PaddedCollator

Collator = Callable[[Sequence[Example | list[Example]]], Batch]


def build_collator(
    layout: BatchLayout,
    *,
    pad_token_id: int,
    pad_to_multiple_of: int | None = None,
    ignore_pad_token_for_loss: bool = True,
) -> Collator:
    """Build the function that makes one batch of the rows of a micro-batch.

    Args:
        layout: `flat` or `padded`, see `data.batches.BatchLayout`.
        pad_token_id: Id that fills up shorter rows. It has no part in masks, so it may equal the end token.
        pad_to_multiple_of: Round the length of padded batches up to a multiple of this; only for `padded`.
        ignore_pad_token_for_loss: Give padding no label. Otherwise its label is `pad_token_id`: it is learnt.

    Raises:
        ValueError: `pad_to_multiple_of` is set for the flat layout, which has no padding.
    """
    if layout == "padded":
        return PaddedCollator(pad_token_id, pad_to_multiple_of, ignore_pad_token_for_loss)
    if pad_to_multiple_of is not None:
        raise ValueError(
            f"pad_to_multiple_of is {pad_to_multiple_of}, but the flat layout has no padding: "
            "leave it out, or use the padded layout"
        )
    return FlatCollator()
