"""Builders of rows for the tests of this package."""

import numpy as np

from tunesmith.data.batches import Example


def example(ids, spans=(), row_id=0) -> Example:
    """Build one row: ids as a list, spans as half-open pairs."""
    flat = [border for span in spans for border in span]
    return Example(
        input_ids=np.asarray(ids, dtype=np.int32),
        trained_spans=np.asarray(flat, dtype=np.int32),
        row_id=row_id,
    )
