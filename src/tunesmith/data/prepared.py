"""What the preparation of data gives to a run."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from tunesmith.data.account import DataReport, Tally
from tunesmith.data.loading.datasets import ExampleDataset, PackedDataset
from tunesmith.data.loading.encoded import EncodedRows
from tunesmith.data.loading.feedback import FeedbackDataset
from tunesmith.data.sources import DatasetSpec
from tunesmith.data.streaming.places import is_streamed
from tunesmith.data.streaming.source import StreamSource

TrainableDataset = ExampleDataset | FeedbackDataset | PackedDataset

EVAL_NAME = "validation"
"""Key of the rows to evaluate on, whether held back or named."""


def find_examples(dataset: TrainableDataset) -> ExampleDataset:
    """Return the single rows behind a data set, however it puts them together."""
    if isinstance(dataset, PackedDataset):
        return find_examples(cast("TrainableDataset", dataset.examples))
    return dataset.rows if isinstance(dataset, FeedbackDataset) else dataset


@dataclass(frozen=True, slots=True)
class PreparedSet:
    """One data set, encoded."""

    spec: DatasetSpec
    role: str
    rows: EncodedRows
    tally: Tally
    first_row_id: int
    """`row_id` of its first source row; those of all data sets of a run are numbered through."""


@dataclass(frozen=True, slots=True)
class PreparedData:
    """All data of a run."""

    train: TrainableDataset | None
    """Rows to train on; `None` if the run names none."""

    evals: Mapping[str, TrainableDataset]
    """Rows to evaluate on, by name; empty if the run names none."""

    report: DataReport
    sets: tuple[PreparedSet, ...]
    stream: StreamSource | None = None
    """Rows to train on that are read while the run goes on; `train` is `None` then."""

    def describe_row(self, row_id: int) -> str:
        """Return where a row comes from: `data set identity, file identity.json, row 17` (counted from 1).

        Args:
            row_id: As in an example or in the `row_ids` of a batch.
        """
        if self.stream is not None and is_streamed(row_id):
            return self.stream.describe_row(row_id)
        number = bisect_right([item.first_row_id for item in self.sets], row_id) - 1
        source = self.sets[number] if number >= 0 else None
        place = source.rows.find_place(row_id - source.first_row_id) if source else None
        if source is None or place is None:
            raise KeyError(f"no example was made of row {row_id}")
        return f"data set {source.spec.name}, file {source.spec.files[place.file]}, row {place.file_row + 1}"
