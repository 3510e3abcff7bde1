"""One line per row, filled up on the right to the longest row of the micro-batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tunesmith.data.batches import IGNORE_INDEX, Batch, Example
from tunesmith.data.collators.padding import (
    pad_positions,
    pad_rows,
    padded_length,
    sample_ids,
    sample_positions,
    write_labels,
)


@dataclass(frozen=True, slots=True)
class PaddedCollator:
    """Makes padded batches. Single rows get an attention mask, packed rows restarting position ids instead.

    As soon as one row of a micro-batch is packed, the whole batch is laid out as packed.

    Example:
        Rows `[5 6 7]` and `[8 9]`, pad id -8, the first row's last two tokens trained::

            input_ids         labels               attention_mask
            5  6  7           -100    6    7       1 1 1
            8  9 -8           -100 -100 -100       1 1 0
    """

    pad_token_id: int
    pad_to_multiple_of: int | None = None
    ignore_pad_token_for_loss: bool = True

    def __call__(self, rows: Sequence[Example | list[Example]]) -> Batch:
        """Make one batch of shape [rows, longest row]."""
        packs = [row if isinstance(row, list) else [row] for row in rows]
        ids = [pack[0]["input_ids"] if len(pack) == 1 else sample_ids(pack) for pack in packs]
        lengths = [len(row) for row in ids]
        length = padded_length(lengths, self.pad_to_multiple_of)
        labels = np.full((len(packs), length), IGNORE_INDEX, dtype=np.int64)
        for line, pack, size in zip(labels, packs, lengths, strict=True):
            write_labels(line, pack)  # in place: an array for each row would cost more than filling it
            if not self.ignore_pad_token_for_loss:
                line[size:] = self.pad_token_id
        row_ids = np.array([sample["row_id"] for pack in packs for sample in pack], dtype=np.int64)
        batch: Batch = {
            "input_ids": torch.from_numpy(pad_rows(ids, length, self.pad_token_id)),
            "labels": torch.from_numpy(labels),
            "row_ids": torch.from_numpy(row_ids),
        }
        if any(isinstance(row, list) for row in rows):
            positions = [sample_positions([len(sample["input_ids"]) for sample in pack]) for pack in packs]
            batch["position_ids"] = torch.from_numpy(pad_positions(positions, length))
        else:
            real = np.arange(length) < np.asarray(lengths)[:, None]
            batch["attention_mask"] = torch.from_numpy(real.astype(np.int64))
        return batch
