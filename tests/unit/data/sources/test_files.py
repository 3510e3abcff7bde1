import json
import sys

import pytest
from upath import UPath

from tunesmith.data.sources.files import build_path, content_digest, find_files, is_pattern, is_remote
from tunesmith.data.sources.rows import read_file
from tunesmith.errors import DataError, MissingDependencyError


@pytest.fixture
def folder(tmp_path):
    for name in ("parts/a.jsonl", "parts/b.jsonl", "parts/deep/c.jsonl", "parts/deep/.hidden.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"name": name}) + "\n")
    return tmp_path


@pytest.fixture
def bucket():
    place = UPath("memory://bucket")
    for name in ("parts/a.jsonl", "parts/b.jsonl", "parts/deep/c.jsonl"):
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"name": name}) + "\n")
    yield place
    place.fs.rm("/bucket", recursive=True)


def names_of(files):
    return [next(read_file(file)).values["name"] for file in files]


PLACES = {
    "parts/a.jsonl": ["parts/a.jsonl"],
    "parts": ["parts/a.jsonl", "parts/b.jsonl"],
    "parts/*.jsonl": ["parts/a.jsonl", "parts/b.jsonl"],
    "parts/**/*.jsonl": ["parts/a.jsonl", "parts/b.jsonl", "parts/deep/c.jsonl"],
    "parts/[b-z].jsonl": ["parts/b.jsonl"],
}


@pytest.mark.parametrize("name", PLACES)
def test_files_folders_and_patterns_give_files_in_order(folder, name):
    assert names_of(find_files(build_path(name, folder), "toy")) == PLACES[name]


def test_what_is_written_for_people_beside_rows_is_no_data(folder):
    for name in ("README.md", "README.txt", "LICENSE", "card.md"):
        (folder / "parts" / name).write_text("Read me.")
    assert names_of(find_files(folder / "parts", "toy")) == PLACES["parts"]
    (folder / "parts" / "more.tsv").touch()
    with pytest.raises(DataError, match=r"has files of type .tsv; .*A pattern such as .*parts/\*\.jsonl names some"):
        find_files(folder / "parts", "toy")


@pytest.mark.parametrize("name", PLACES)
def test_an_object_store_is_read_like_a_disk(bucket, name):
    assert names_of(find_files(build_path(f"memory://bucket/{name}"), "toy")) == PLACES[name]


def test_the_digest_of_a_file_follows_its_content_here_and_in_a_store(folder, bucket):
    for path in (folder / "parts/a.jsonl", bucket / "parts/a.jsonl"):
        before = content_digest(path)
        assert content_digest(path) == before
        path.write_text('{"name": "changed"}\n')
        assert content_digest(path) != before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("parts/*.csv", "no file is like"),
        ("gone.jsonl", "does not exist"),
        (".", r"holds no files; for those in its folders, name .*\*\*.*jsonl or one of parts"),
    ],
)
def test_what_has_no_files_is_refused_with_what_to_do(folder, name, message):
    with pytest.raises(DataError, match=f"toy: .*{message}"):
        find_files(folder / name, "toy")


def test_columnar_files_are_not_compressed_a_second_time(tmp_path):
    (tmp_path / "a.parquet.gz").touch()
    with pytest.raises(DataError, match=r"a.parquet.gz is compressed as a whole; .parquet files are compressed inside"):
        find_files(tmp_path / "a.parquet.gz", "toy")


def test_what_datasets_writes_beside_its_rows_is_no_data(tmp_path):
    for name in ("data.arrow", "state.json", "dataset_info.json"):
        (tmp_path / name).touch()
    assert [file.name for file in find_files(tmp_path, "toy")] == ["data.arrow"]


def test_addresses_and_patterns_are_told_from_paths():
    names = ("s3://b/a.json", "a/b.json", "C:\\a.json", "://x")
    assert [is_remote(name) for name in names] == [True, False, False, False]
    assert [is_pattern(name) for name in ("a/*.json", "a?.json", "a[12].json", "a.json")] == [True, True, True, False]


def test_an_address_without_a_reader_or_package_is_refused(monkeypatch):
    with pytest.raises(DataError, match="nowhere://a: there is no reader for such an address"):
        build_path("nowhere://a").exists()
    monkeypatch.setitem(sys.modules, "upath", None)
    with pytest.raises(MissingDependencyError, match=r"tunesmith\[cloud\]"):
        build_path("s3://bucket/a.json")
