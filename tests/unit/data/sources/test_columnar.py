import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, Features, Json, Value

from tunesmith.data.sources.problems import UnreadableValue
from tunesmith.data.sources.rows import read_file
from tunesmith.errors import DataError

TOOLS = [[{"name": "a", "parameters": {"x": {"type": "int"}}}], [{"name": "b", "parameters": {"y": {"enum": ["q"]}}}]]


def values(path):
    return [row.values for row in read_file(path)]


def write(path, table):
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
def test_objects_keep_only_the_keys_that_their_own_row_had(tmp_path, name):
    rows = [{"tools": tools, "messages": [{"role": "user", "content": "é"}]} for tools in TOOLS]
    rows[0]["messages"].append({"role": "assistant", "tool_calls": [{"name": "a", "arguments": {"x": 1}}]})
    path = write(tmp_path / name, pa.Table.from_pylist(rows))
    assert values(path) == rows


def test_columns_without_objects_keep_their_nulls(tmp_path):
    rows = [{"a": None, "b": ["x", None]}, {"a": "y", "b": None}]
    assert values(write(tmp_path / "rows.parquet", pa.Table.from_pylist(rows))) == rows


def test_json_columns_of_datasets_are_parsed_at_every_depth(tmp_path):
    features = Features({"tools": Json(), "calls": [{"arguments": Json(), "id": Value("string")}]})
    rows = [{"tools": TOOLS[n], "calls": [{"arguments": {"k": n}, "id": "1"}]} for n in range(2)]
    Dataset.from_list(rows, features=features).save_to_disk(tmp_path / "set")
    (file,) = (tmp_path / "set").glob("*.arrow")
    assert values(file) == rows


def test_a_value_that_python_cannot_hold_does_not_stop_the_other_columns(tmp_path):
    table = pa.table({"when": pa.array([2**62], pa.timestamp("us")), "text": ["a"]})
    (row,) = values(write(tmp_path / "rows.parquet", table))
    assert row["text"] == "a"
    assert row["when"] == UnreadableValue("a value of type timestamp[us] that cannot be read")
    assert repr(row["when"]) == "a value of type timestamp[us] that cannot be read"


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
def test_a_column_that_is_there_twice_is_refused(tmp_path, name):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(DataError, match="the column 'a' is there twice"):
        values(write(tmp_path / name, table))
