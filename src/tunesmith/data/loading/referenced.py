"""Rows with completions, each with what the reference policy thinks of them."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from tunesmith.data.batches import PairExample
from tunesmith.data.loading.datasets import ExampleDataset
from tunesmith.data.loading.feedback import FeedbackDataset


class ReferencedRows(Dataset[PairExample]):
    """Rows of a data set with their reference log-probabilities put beside them.

    Args:
        rows: Pairs, or rated completions.
        values: Log-probability of both completions of each row under the reference policy. Shape [rows, 2].
    """

    def __init__(self, rows: ExampleDataset | FeedbackDataset, values: NDArray[np.float32]) -> None:
        if values.shape != (len(rows), 2):
            raise ValueError(f"{len(rows)} rows have values of shape {values.shape}, not [{len(rows)}, 2]")
        self.rows = rows
        self.values = values

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> PairExample:
        row: Any = self.rows[index]
        return cast("PairExample", {**row, "reference_log_probabilities": self.values[index]})

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each row. Shape [rows]."""
        return self.rows.lengths

    @property
    def row_ids(self) -> NDArray[np.int64]:
        """Source row of each row, see `PreparedData.describe_row`. Shape [rows]."""
        return self.rows.row_ids
