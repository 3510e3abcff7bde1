"""All rows of a micro-batch end to end in one row: every token that is computed is a real one."""

from collections.abc import Sequence

import numpy as np
import torch

from tunesmith.data.batches import Batch, Example
from tunesmith.data.collators.padding import sample_ids, sample_labels, sample_positions


class FlatCollator:
    """Makes flat batches; packed and single rows may stand side by side.

    Example:
        Samples `[5 6 7]` and `[8 9]`, both trained throughout::

            input_ids     5    6    7    8    9
            labels     -100    6    7 -100    9
            positions     0    1    2    0    1
            cu_seq_lens_q 0              3         5
    """

    def __call__(self, rows: Sequence[Example | list[Example]]) -> Batch:
        """Make one batch of shape [1, tokens of all rows]."""
        samples: list[Example] = []
        for row in rows:
            if isinstance(row, list):
                samples.extend(row)
            else:
                samples.append(row)
        lengths = [len(sample["input_ids"]) for sample in samples]
        borders = np.zeros(len(samples) + 1, dtype=np.int32)
        np.cumsum(lengths, out=borders[1:])
        cu_seq_lens = torch.from_numpy(borders)
        longest = max(lengths)
        return Batch(
            input_ids=torch.from_numpy(sample_ids(samples).astype(np.int64)).unsqueeze(0),
            labels=torch.from_numpy(sample_labels(samples)).unsqueeze(0),
            position_ids=torch.from_numpy(sample_positions(lengths)).unsqueeze(0),
            cu_seq_lens_q=cu_seq_lens,
            cu_seq_lens_k=cu_seq_lens,
            max_length_q=longest,
            max_length_k=longest,
            row_ids=torch.tensor([sample["row_id"] for sample in samples], dtype=torch.int64),
        )
