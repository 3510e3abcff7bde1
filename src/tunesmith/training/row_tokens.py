"""How many tokens rows take up in a batch, which is more than are stored where a prompt has two completions."""

import numpy as np
from numpy.typing import NDArray

from tunesmith.config import RunConfig
from tunesmith.data.batches import BatchLayout
from tunesmith.data.loading.datasets import ExampleDataset
from tunesmith.data.prepared import TrainableDataset


def count_row_tokens(rows: TrainableDataset, layout: BatchLayout) -> NDArray[np.int64]:
    """Return the tokens that each row, or pack of rows, takes up in a batch at most. Shape [rows].

    A pair is stored with its prompt once and becomes two sequences that each have it, unless prompts are shared; in a
    padded batch both are as long as the longer one. The two sequences of a rated row are never kept together: the
    mismatched one is scored before the step, without gradients.
    """
    if not isinstance(rows, ExampleDataset):
        return rows.lengths
    lengths, prompts, chosen_ends = rows.lengths, rows.prompt_ends, rows.chosen_ends
    if layout == "flat":
        return lengths + prompts
    longer = np.maximum(chosen_ends, lengths - chosen_ends + prompts)
    return np.where(chosen_ends > 0, 2 * longer, lengths)


def find_most_tokens(config: RunConfig, rows: TrainableDataset | None, layout: BatchLayout) -> int | None:
    """Return the tokens of the largest micro-batch that these rows can make; `None` where rows are not known.

    Args:
        config: Of the run.
        rows: To train on.
        layout: Of the batches; padding counts.
    """
    if rows is None or len(rows) == 0:
        return None
    tokens = count_row_tokens(rows, layout)
    longest = int(tokens.max())
    budget = config.loading.tokens_per_device_batch
    if budget is not None:
        return max(budget, longest)
    size = min(config.training.batch_size, len(tokens))
    if layout == "padded":
        return size * longest
    return int(np.partition(tokens, -size)[-size:].sum())
