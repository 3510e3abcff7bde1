"""Rated completions with a mismatched one beside each: `[prompt | completion | completion of another row]`.

The KL term of stage `kto` asks how likely the policy finds answers that have nothing to do with the prompt. Each row
gets one for itself, so that it is the same whatever rows share its batch.
"""

import logging
import zlib
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from tunesmith.data.batches import PairExample
from tunesmith.data.loading.datasets import ExampleDataset
from tunesmith.errors import DataError

logger = logging.getLogger(__name__)

_MOST_STEPS = 1000
"""How far the search for another prompt goes; only sets that hardly have two prompts get there."""


class FeedbackDataset(Dataset[PairExample]):
    """Rows `[prompt | completion]`, each with the completion of the row half the set away that has another prompt.

    Half the set away, because neighbours are often two answers to one prompt.

    Args:
        rows: Rated completions.
        cutoff_len: Largest number of tokens of a prompt with a completion; a mismatched completion is cut to fit.

    Raises:
        DataError: There is only one row.
    """

    def __init__(self, rows: ExampleDataset, cutoff_len: int) -> None:
        if len(rows) < 2:
            raise DataError(
                "Only one rated completion is left. Stage kto compares each with the completion of another row: give "
                "it at least two rows (if val_size holds some back, on both sides)."
            )
        self.rows = rows
        self.cutoff_len = cutoff_len
        self.partners = find_partners([_prompt_digest(rows[index]) for index in range(len(rows))])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> PairExample:
        row = cast("PairExample", self.rows[index])
        other = cast("PairExample", self.rows[int(self.partners[index])])
        ids, end = row["input_ids"], len(row["input_ids"])
        mismatched = other["input_ids"][other["prompt_end"] :][: self.cutoff_len - row["prompt_end"]]
        spans = other["trained_spans"].reshape(-1, 2) - other["prompt_end"]
        kept = np.minimum(spans[spans[:, 0] < len(mismatched)], len(mismatched)) + end
        return PairExample(
            input_ids=np.concatenate([ids, mismatched]),
            trained_spans=np.concatenate([row["trained_spans"], kept.reshape(-1)]).astype(np.int32),
            row_id=row["row_id"],
            prompt_end=row["prompt_end"],
            chosen_end=end,
            signal=row["signal"],
        )

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of the longer of each row's two sequences. Shape [rows]."""
        lengths, prompts = self.rows.lengths, self.rows.prompt_ends
        mismatched = prompts + (lengths - prompts)[self.partners]
        return np.maximum(lengths, np.minimum(mismatched, self.cutoff_len))

    @property
    def row_ids(self) -> NDArray[np.int64]:
        """Source row of each row, see `PreparedData.describe_row`. Shape [rows]."""
        return self.rows.row_ids

    @property
    def num_desirable(self) -> int:
        """Number of rows whose completion is desirable."""
        return int((self.rows.signals > 0.5).sum())


def note_one_sided(rows: FeedbackDataset) -> None:
    """Tell the user of completions that are all rated alike, as a label column that was not filled in has them."""
    if rows.num_desirable in (0, len(rows)):
        logger.warning(
            "All %s rated completions are %s, so the run learns nothing about the difference. Check the column of the "
            "label (kto_tag), or add completions of the other kind.",
            f"{len(rows):,}",
            "desirable" if rows.num_desirable else "undesirable",
        )


def find_partners(digests: Sequence[int]) -> NDArray[np.int64]:
    """Return for each row another one: half the set away, or the next one from there that has another prompt.

    Where all prompts are the same, it is the row half the set away.

    Args:
        digests: A number for each row's prompt, equal for equal prompts; two or more rows.
    """
    own = np.asarray(digests)
    num_rows = len(own)
    half = (np.arange(num_rows) + num_rows // 2) % num_rows
    partners = half.copy()
    for _ in range(min(num_rows, _MOST_STEPS)):
        alike = own[partners] == own
        if not alike.any():
            return partners
        partners[alike] = (partners[alike] + 1) % num_rows
    return np.where(own[partners] == own, half, partners)


def _prompt_digest(row: Any) -> int:
    return zlib.crc32(np.ascontiguousarray(row["input_ids"][: row["prompt_end"]]).data)
