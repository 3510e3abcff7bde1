"""Holds back rows for evaluation."""

import numpy as np
from numpy.typing import NDArray

from tunesmith.errors import DataError


def hold_back(row_ids: NDArray[np.int64], val_size: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide examples into those to train on and those to evaluate on.

    All examples of one source row go to the same side, so that nothing that is evaluated was learnt in another guise.

    Args:
        row_ids: Source row of each example. Shape [examples].
        val_size: Share of the source rows below 1, or their number from 1 on.
        seed: Start of the random numbers; with the number of rows it decides the choice.

    Returns:
        Indices for training and for evaluation, each ascending.

    Raises:
        DataError: Nothing would be left to train on.
    """
    sources = np.unique(row_ids)
    count = max(1, round(len(sources) * val_size)) if val_size < 1 else int(val_size)
    if count >= len(sources):
        rows = "is only 1 usable row" if len(sources) == 1 else f"are only {len(sources)} usable rows"
        raise DataError(
            f"val_size is {val_size:g}, but there {rows}, and at least one must be left "
            "to train on. Lower val_size, or name other rows with eval_dataset."
        )
    chosen = np.random.default_rng(seed).choice(sources, size=count, replace=False)
    held_back = np.isin(row_ids, chosen)
    return np.flatnonzero(~held_back), np.flatnonzero(held_back)
