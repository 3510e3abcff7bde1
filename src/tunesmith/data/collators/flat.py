"""All rows of a micro-batch end to end in one row: every token that is computed is a real one."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch

from tunesmith.data.batches import Batch, Example
from tunesmith.data.collators.padding import lay_end_to_end, sample_positions


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
        # Arrays go through numpy: torch.tensor on a list and unsqueeze cost more than the rest of a small batch.
        borders = np.array([0, *accumulate(lengths)], dtype=np.int32)
        cu_seq_lens = torch.from_numpy(borders)
        longest = max(lengths)
        ids, labels = lay_end_to_end(samples, int(borders[-1]))
        return {
            "input_ids": torch.from_numpy(ids[None]),
            "labels": torch.from_numpy(labels[None]),
            "position_ids": torch.from_numpy(sample_positions(lengths)[None]),
            "cu_seq_lens_q": cu_seq_lens,
            "cu_seq_lens_k": cu_seq_lens,
            "max_length_q": longest,
            "max_length_k": longest,
            "row_ids": torch.from_numpy(np.array([sample["row_id"] for sample in samples], dtype=np.int64)),
        }
