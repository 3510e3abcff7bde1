"""Files of rows for the tests of this package."""

import csv
import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq

from tunesmith.data.sources import Columns, DatasetSpec

KINDS = (".jsonl", ".json", ".txt", ".csv", ".parquet", ".arrow", ".stream.arrow", ".array.json", ".jsonl.gz")


def rows_of(count):
    """Rows of one column, of very different lengths."""
    return [{"text": f"row {number} " + "é" * (number * 37 % 90)} for number in range(count)]


def write_file(path, rows, *, kind, group=4):
    """Write rows as a file of a kind, columnar ones in groups."""
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    match kind:
        case ".jsonl" | ".json":
            path.write_text(lines, encoding="utf-8")
        case ".jsonl.gz":
            path.write_bytes(gzip.compress(lines.encode()))
        case ".array.json":
            path.write_text(json.dumps(rows), encoding="utf-8")
        case ".txt":
            path.write_text("".join(row["text"] + "\n" for row in rows), encoding="utf-8")
        case ".csv":
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(["text"])
                writer.writerows([row["text"]] for row in rows)
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)
        case ".arrow" | ".stream.arrow":
            table = pa.Table.from_pylist(rows)
            make = pa.ipc.new_file if kind == ".arrow" else pa.ipc.new_stream
            with make(path, table.schema) as writer:
                for batch in table.to_batches(max_chunksize=group):
                    writer.write_batch(batch)
    return path


def text_spec(*paths, name="texts", **settings):
    """The data set of some files of texts."""
    return DatasetSpec(name=name, files=tuple(paths), formatting="text", columns=Columns(prompt="text"), **settings)
