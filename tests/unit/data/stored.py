"""Builders of stored rows for the tests of this package."""

from pathlib import Path

import numpy as np

from tunesmith.data.loading.encoded import EncodedRows, EncodedRowsWriter, Place, build_chunk


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
