import bz2
import gzip
import lzma

import pytest
from backports import zstd

from tunesmith.data.sources.compression import find_file_type, is_compressed, open_text
from tunesmith.data.sources.rows import read_file
from tunesmith.errors import DataError, MissingDependencyError

TEXT = "\ufeff" + '{"a": "é🙂"}\n' * 3
PACKERS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_compressed_file_gives_the_rows_of_the_plain_one(tmp_path, suffix):
    path = tmp_path / f"rows.jsonl{suffix}"
    path.write_bytes(PACKERS[suffix](TEXT.encode()))
    assert [row.values for row in read_file(path)] == [{"a": "é🙂"}] * 3
    with open_text(path) as file:
        assert file.read() == TEXT[1:]


@pytest.mark.parametrize("suffix", PACKERS)
def test_several_members_are_one_text(tmp_path, suffix):
    path = tmp_path / f"rows.txt{suffix}"
    path.write_bytes(PACKERS[suffix](b"one\n") + PACKERS[suffix](b"two\n"))
    assert [row.values["text"] for row in read_file(path)] == ["one", "two"]


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_file_that_is_cut_short_is_named_with_the_row_that_was_to_come(tmp_path, suffix):
    path = tmp_path / f"rows.jsonl{suffix}"
    path.write_bytes(PACKERS[suffix](TEXT.encode())[:-10])
    with pytest.raises(DataError, match=rf"rows\.jsonl\{suffix} cannot be read at row \d"):
        list(read_file(path))


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_file_that_is_not_what_its_name_says_is_named(tmp_path, suffix):
    path = tmp_path / f"rows.jsonl{suffix}"
    path.write_bytes(TEXT.encode())
    with pytest.raises(DataError, match=rf"rows\.jsonl\{suffix} cannot be read at row 1"):
        list(read_file(path))


def test_the_type_of_a_file_is_told_by_the_name_below_the_compression(tmp_path):
    assert find_file_type(tmp_path / "A.JSONL.GZ") == ".jsonl"
    assert find_file_type(tmp_path / "a.b.csv") == ".csv"
    assert (is_compressed(tmp_path / "a.gz"), is_compressed(tmp_path / "a.json")) == (True, False)


def test_without_the_package_for_zst_its_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "backports.zstd", None)
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"")
    with pytest.raises(MissingDependencyError, match=r"tunesmith\[zstd\]"):
        list(read_file(path))
