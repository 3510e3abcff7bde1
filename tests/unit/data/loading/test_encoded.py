import pickle

import numpy as np
import pytest

from tunesmith.data.loading import encoded
from tunesmith.data.loading.encoded import DamagedFileError, EncodedRows, EncodedRowsWriter, Place, build_chunk


def int32(*values):
    return np.asarray(values, dtype=np.int32)


FIRST = build_chunk(
    [int32(5, 6, 7), int32(8), int32(9, 3)],
    [int32(1, 3), int32(), int32(0, 1, 1, 2)],
    [Place(0, 0, 0), Place(2, 0, 2), Place(2, 0, 2)],
)
SECOND = build_chunk([int32(4, 4, 4, 4)], [int32(0, 2)], [Place(7, 1, 3)])


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "rows.arrow"
    write(path, [FIRST, build_chunk([], [], []), SECOND], {"note": "你好"})
    return path


def write(path, chunks, metadata):
    writer = EncodedRowsWriter(path)
    for chunk in chunks:
        writer.write(chunk)
    writer.finish(metadata)
    writer.close()


def test_rows_and_metadata_come_back_as_they_were_written(path):
    rows = EncodedRows(path)
    assert len(rows) == 4
    assert rows.metadata == {"note": "你好"}
    assert rows.lengths.tolist() == [3, 1, 2, 4]
    assert rows.source_rows.tolist() == [0, 2, 2, 7]
    (chunk,) = rows.chunks
    assert chunk.input_ids.tolist() == [5, 6, 7, 8, 9, 3, 4, 4, 4, 4]
    assert chunk.trained_spans.tolist() == [1, 3, 0, 1, 1, 2, 0, 2]
    assert chunk.span_borders.tolist() == [0, 2, 2, 6, 8]


def test_the_first_token_of_a_row_is_not_counted_as_trained(path):
    assert EncodedRows(path).trained_tokens.tolist() == [2, 0, 1, 1]


def test_the_place_of_a_source_row_is_found(path):
    rows = EncodedRows(path)
    assert rows.find_place(2) == Place(2, 0, 2)
    assert rows.find_place(7) == Place(7, 1, 3)
    assert [rows.find_place(row) for row in (1, 3, 8, -1)] == [None] * 4


def test_another_process_maps_the_same_rows(path):
    assert pickle.loads(pickle.dumps(EncodedRows(path))).lengths.tolist() == [3, 1, 2, 4]


def test_a_file_without_rows_can_be_read(tmp_path):
    write(tmp_path / "empty.arrow", [], {"read": 0})
    rows = EncodedRows(tmp_path / "empty.arrow")
    assert (len(rows), rows.lengths.tolist(), rows.trained_tokens.tolist()) == (0, [], [])
    assert rows.find_place(0) is None


@pytest.mark.parametrize("keep", [0, 7, 300, -1])
def test_a_file_that_is_cut_short_is_not_read(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DamagedFileError):
        EncodedRows(path)


def test_changed_token_ids_are_noticed(path):
    content = path.read_bytes()
    at = content.index(int32(5, 6, 7, 8, 9, 3).tobytes())
    path.write_bytes(content[:at] + int32(5, 6, 7, 8, 9, 4).tobytes() + content[at + 24 :])
    with pytest.raises(DamagedFileError, match="part 1 of 2 has another checksum"):
        EncodedRows(path)


def test_a_file_without_its_end_is_not_read(tmp_path):
    writer = EncodedRowsWriter(tmp_path / "cut.arrow")
    writer.write(FIRST)
    writer._writer.close()
    writer.close()
    with pytest.raises(DamagedFileError, match="its end is missing"):
        EncodedRows(tmp_path / "cut.arrow")


def test_another_arrow_file_is_not_read(tmp_path):
    import pyarrow as pa

    table = pa.table({"text": ["a"]})
    with pa.ipc.new_file(tmp_path / "other.arrow", table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(DamagedFileError, match="it has other columns"):
        EncodedRows(tmp_path / "other.arrow")


def test_small_files_are_held_in_memory_and_large_ones_mapped(path, monkeypatch):
    held = EncodedRows(path)
    monkeypatch.setattr(encoded, "HELD_BYTES", 0)
    mapped = EncodedRows(path)
    assert (len(held.chunks), len(mapped.chunks)) == (1, 2)
    assert held.chunks[0].input_ids.flags.owndata
    assert not mapped.chunks[0].input_ids.flags.owndata
    for name in ("lengths", "trained_tokens", "source_rows", "prompt_ends"):
        assert getattr(held, name).tolist() == getattr(mapped, name).tolist()
    assert [held.find_place(row) for row in range(9)] == [mapped.find_place(row) for row in range(9)]
    assert [chunk.span_borders.tolist() for chunk in mapped.chunks] == [[0, 2, 2, 6], [0, 2]]
    (chunk,) = held.chunks
    assert chunk.input_ids[chunk.id_borders[3] : chunk.id_borders[4]].tolist() == [4, 4, 4, 4]
    assert chunk.trained_spans[chunk.span_borders[2] : chunk.span_borders[3]].tolist() == [0, 1, 1, 2]
