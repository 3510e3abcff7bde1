"""Names and types of what flows from the data engine to the model.

An *example* is one tokenised row. A *batch* is what a collator makes of several. Batch keys are those of
Hugging Face models and are spelled nowhere else.
"""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np
import torch
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


class PairExample(Example):
    """One prompt with two completions, the prompt once: `[prompt | chosen | rejected]`.

    The chosen sequence is `input_ids[:chosen_end]`; the rejected one is the prompt and `input_ids[chosen_end:]`.
    `trained_spans` are the learnt positions of both completions, counted in these ids.

    With stage `kto` the same shape holds `[prompt | completion | completion of another row]`.
    """

    prompt_end: int
    """Number of tokens of the prompt, at least 1."""

    chosen_end: int
    """Place at which the second completion begins."""

    signal: float
    """What is known of the row: the margin of a pair; with stage `kto` 1 for a desirable completion, 0 for another."""

    reference_log_probabilities: NotRequired[NDArray[np.float32]]
    """Of both completions under the reference policy, where they were computed beforehand. Shape [2]."""


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

    stream_place: NotRequired[Any]
    """Where the stream that the batch is from goes on, see `streaming.loader.StreamPlace`; not for the model."""


class CompletionBatch(Batch):
    """A batch whose sequences each end in a completion that is scored as a whole.

    Pairs stand in the order chosen 0, rejected 0, chosen 1, rejected 1 ... With `completion_positions` nothing of a
    batch has to be searched for on the device, and any layout can say what predicts what.
    """

    completion_positions: Tensor
    """Positions that predict a learnt token, as indices into the flattened [rows * tokens]. Shape [items], int64."""

    completion_labels: Tensor
    """The tokens they predict. Shape [items], int64."""

    completion_sequences: Tensor
    """Number of the sequence that each belongs to, ascending. Shape [items], int64."""

    last_positions: Tensor
    """The last token of each sequence, as an index like those above. Shape [sequences], int64."""

    signals: Tensor
    """`PairExample.signal` of each row. Shape [rows of the data set], float32."""

    item_weights: Tensor
    """1 for each row of the data set that counts, 0 for a filler. Shape [rows of the data set], float32."""

    reference_log_probabilities: NotRequired[Tensor]
    """Of each sequence's completion under the reference policy. Shape [sequences], float32."""

    branch_lengths: NotRequired[tuple[tuple[int, int, int], ...]]
    """Where pairs share their prompt: tokens of each pair's prompt, chosen and rejected completion. For the model."""

    mismatched: NotRequired["CompletionBatch"]
    """With stage `kto`: the prompts of this batch, each with the completion of another row."""

    step_means: NotRequired[dict[str, Tensor]]
    """What the objective measured over the whole optimiser step, put in by the trainer. Shape [] each."""


LOSS_KEYS = (
    "labels",
    "completion_positions",
    "completion_labels",
    "completion_sequences",
    "last_positions",
    "signals",
    "item_weights",
    "reference_log_probabilities",
    "mismatched",
    "step_means",
    "reduce_means",
    "completion_scores",
)
"""Batch keys that are for the loss and not for the model."""

BOOKKEEPING_KEYS = ("row_ids", "stream_place")
"""Batch keys that the trainer takes out before a batch reaches the model."""


def move_batch(batch: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Return a batch on a device, without the keys of the trainer; with stage `kto` it holds another one."""
    moved: dict[str, Any] = {}
    for key, value in batch.items():
        if isinstance(value, Mapping):
            moved[key] = move_batch(value, device)
        elif key not in BOOKKEEPING_KEYS:
            moved[key] = value.to(device) if isinstance(value, Tensor) else value
    return moved
