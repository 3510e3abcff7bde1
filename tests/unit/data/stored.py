"""Builders of stored rows for the tests of this package."""

from pathlib import Path

import numpy as np

from tunesmith.data.loading.encoded import Completions, EncodedRows, EncodedRowsWriter, Place, build_chunk


def stored_rows(path: Path, chunks) -> EncodedRows:
    """Write chunks of `(source row, ids, spans)` and map the file."""
    writer = EncodedRowsWriter(path)
    for rows in chunks:
        writer.write(
            build_chunk(
                [np.asarray(ids, dtype=np.int32) for _, ids, _ in rows],
                [np.asarray([border for span in spans for border in span], dtype=np.int32) for _, _, spans in rows],
                [Place(row, 0, row) for row, _, _ in rows],
            )
        )
    writer.finish({})
    writer.close()
    return EncodedRows(path)


def stored_pairs(path: Path, rows) -> EncodedRows:
    """Write rows of `(prompt, completion, signal)`, all of the completion learnt, and map the file."""
    writer = EncodedRowsWriter(path)
    ends = [(len(prompt), len(prompt) + len(completion)) for prompt, completion, _ in rows]
    writer.write(
        build_chunk(
            [np.asarray([*prompt, *completion], dtype=np.int32) for prompt, completion, _ in rows],
            [np.asarray(each, dtype=np.int32) for each in ends],
            [Place(row, 0, row) for row in range(len(rows))],
            [Completions(*each, signal) for each, (_, _, signal) in zip(ends, rows, strict=True)],
        )
    )
    writer.finish({})
    writer.close()
    return EncodedRows(path)
