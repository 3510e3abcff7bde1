"""Builders of rows for the tests of this package."""

import numpy as np

from tunesmith.data.batches import Example, PairExample


def example(ids, spans=(), row_id=0) -> Example:
    """Build one row: ids as a list, spans as half-open pairs."""
    flat = [border for span in spans for border in span]
    return Example(
        input_ids=np.asarray(ids, dtype=np.int32),
        trained_spans=np.asarray(flat, dtype=np.int32),
        row_id=row_id,
    )


def pair(prompt, chosen, rejected, *, spans=None, row_id=0, signal=0.0) -> PairExample:
    """Build a prompt with two completions, all of which is learnt unless spans say otherwise."""
    ends = [len(prompt), len(prompt) + len(chosen), len(prompt) + len(chosen) + len(rejected)]
    row = example([*prompt, *chosen, *rejected], spans or [(ends[0], ends[1]), (ends[1], ends[2])], row_id)
    return PairExample(**row, prompt_end=ends[0], chosen_end=ends[1], signal=signal)
