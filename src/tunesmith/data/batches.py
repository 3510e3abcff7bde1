"""Names and types of what flows from the data engine to the model.

An *example* is one tokenised row. A *batch* is what a collator makes of several. Batch keys are those of
Hugging Face models and are spelled nowhere else.
"""

from typing import Literal, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

IGNORE_INDEX = -100
"""Label of a position that is not learnt (the value PyTorch's cross entropy ignores)."""

BatchLayout = Literal["flat", "padded"]
"""`flat`: all rows of a micro-batch one after the other in one row, no padding.
`padded`: one row each, right-padded."""


class Example(TypedDict):
    """One tokenised row."""

    input_ids: NDArray[np.int32]
    """Token ids. Shape [tokens]."""

    trained_spans: NDArray[np.int32]
    """Half-open ranges of learnt positions, flattened: [start0, end0, start1, end1 ...].

    Ascending and disjoint."""

    row_id: int
    """Number of the source row over all data sets of the run, see `PreparedData.describe_row`."""


class Batch(TypedDict):
    """What a collator returns. Shapes: padded [rows, tokens]; flat [1, tokens of all rows]."""

    input_ids: Tensor
    labels: Tensor
    """`input_ids` where a position is learnt, `IGNORE_INDEX` elsewhere. Position i holds token i: not shifted.

    The first token of a row or packed sample never has a label, so a shift does not cross samples."""

    position_ids: NotRequired[Tensor]
    """Restart at 0 with every row or packed sample. Present in both layouts when rows are packed."""

    attention_mask: NotRequired[Tensor]
    """1 on real tokens; only in the padded layout, and only without packing."""

    cu_seq_lens_q: NotRequired[Tensor]
    """Flat layout: borders of the samples, int32. Shape [samples + 1]. The same tensor as `cu_seq_lens_k`."""

    cu_seq_lens_k: NotRequired[Tensor]
    max_length_q: NotRequired[int]
    max_length_k: NotRequired[int]
    row_ids: NotRequired[Tensor]
    """Source rows in this batch, for messages and tests; not for the model. Shape [samples], int64."""


BOOKKEEPING_KEYS = ("row_ids",)
"""Batch keys that the trainer takes out before a batch reaches the model."""
