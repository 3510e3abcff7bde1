"""Rows of Parquet and Arrow files.

Such a file gives all rows of a column one type: the objects of a column share the keys of all of them, and those that a
row does not have are null there. They are taken out again, so that no row sees what another one has.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tunesmith.data.sources.problems import UnreadableValue
from tunesmith.data.sources.text_rows import check_column_names
from tunesmith.errors import DataError

Convert = Callable[[Any], Any]

_BATCH_ROWS = 1000


def read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, some hundred at a time."""
    try:
        with path.open("rb") as source, pq.ParquetFile(source) as file:
            check_column_names(file.schema_arrow.names, path)
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                yield from rows_of_batch(batch)
    except pa.ArrowException as error:
        raise DataError(f"{path}: not a readable Parquet file: {error}") from error


def read_arrow(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Arrow IPC file, or of the stream that `datasets` writes under the same suffix."""
    with _open_arrow(path) as source:
        reader: Any = None
        with suppress(pa.ArrowInvalid):
            file = pa.ipc.open_file(source)
            reader = (file.get_batch(number) for number in range(file.num_record_batches))
        try:
            for batch in reader if reader is not None else pa.ipc.open_stream(source):
                check_column_names(batch.schema.names, path)
                batch.validate(full=True)  # the memory is mapped as it is: damaged offsets would point anywhere
                yield from rows_of_batch(batch)
        except pa.ArrowException as error:
            raise DataError(f"{path}: not a readable Arrow file: {error}") from error


def _open_arrow(path: Path) -> Any:
    return pa.memory_map(str(path)) if isinstance(path, Path) else pa.PythonFile(path.open("rb"), mode="r")


def rows_of_batch(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a record batch; columns that cannot be turned into Python values do not stop the others."""
    names = batch.schema.names
    columns = [_values_of(column) for column in batch.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _values_of(column: Any) -> list[Any]:
    convert = _build_converter(column.type)
    try:
        values: list[Any] = column.to_pylist()
        return values if convert is None else [convert(value) for value in values]
    except (pa.ArrowException, ValueError, OverflowError, ImportError):  # a date in the year 300000, and the like
        return [UnreadableValue(f"a value of type {column.type} that cannot be read")] * len(column)


def _build_converter(kind: Any) -> Convert | None:
    """Return what takes nulls out of objects and parses JSON inside values of a type; nothing where there is none."""
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.json":
        return lambda value: None if value is None else json.loads(value)
    if pa.types.is_struct(kind):
        members = {field.name: _build_converter(field.type) for field in kind}
        return lambda value: None if value is None else _convert_object(value, members)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        convert = _build_converter(kind.value_type)
        if convert is not None:
            return lambda value: None if value is None else [convert(item) for item in value]
    return None


def _convert_object(value: Mapping[str, Any], members: Mapping[str, Convert | None]) -> dict[str, Any]:
    converted = {}
    for key, inner in value.items():
        if inner is not None:
            convert = members[key]
            converted[key] = inner if convert is None else convert(inner)
    return converted
