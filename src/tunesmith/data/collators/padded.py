"""One line per row, filled up on the right to the longest row of the micro-batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tunesmith.data.batches import IGNORE_INDEX, Batch, Example
from tunesmith.data.collators.padding import (
    mark_real,
    pad_positions,
    padded_length,
    sample_positions,
    write_samples,
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
        lengths = [sum([len(sample["input_ids"]) for sample in pack]) for pack in packs]
        length = padded_length(lengths, self.pad_to_multiple_of)
        shape = (len(packs), length)
        ids = np.full(shape, self.pad_token_id, dtype=np.int32)
        labels = np.full(shape, IGNORE_INDEX, dtype=np.int32)
        ids_end_to_end, labels_end_to_end = ids.reshape(-1).data, labels.reshape(-1).data
        for number, pack in enumerate(packs):
            write_samples(pack, ids_end_to_end, labels_end_to_end, number * length)
        if not self.ignore_pad_token_for_loss:
            for line, size in zip(labels, lengths, strict=True):
                line[size:] = self.pad_token_id
        batch: Batch = {
            "input_ids": torch.from_numpy(ids.astype(np.int64)),
            "labels": torch.from_numpy(labels.astype(np.int64)),
            "row_ids": torch.from_numpy(np.array([sample["row_id"] for pack in packs for sample in pack], np.int64)),
        }
        if any(isinstance(row, list) for row in rows):
            positions = [sample_positions([len(sample["input_ids"]) for sample in pack]) for pack in packs]
            batch["position_ids"] = torch.from_numpy(pad_positions(positions, length))
        else:
            batch["attention_mask"] = torch.from_numpy(mark_real(lengths, length))
        return batch
