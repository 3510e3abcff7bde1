import json
from types import SimpleNamespace

import pytest

from tunesmith.data.sources import Columns, load_catalog, read_rows
from tunesmith.errors import DataError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rows.json").write_text('[{"instruction": "a", "output": "b"}]', encoding="utf-8")
    return tmp_path


def catalog(folder, inline=None, **entries):
    if entries:
        (folder / "dataset_info.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(entries).encode())
    return load_catalog(SimpleNamespace(dataset_dir=str(folder), dataset_info=inline, row_variables={"name": "Ada"}))


def test_an_entry_of_the_file_is_found(folder):
    spec = catalog(folder, toy={"file_name": "rows.json", "columns": {"query": "more"}, "num_samples": 5}).resolve(
        "toy"
    )
    assert (spec.name, spec.files, spec.formatting, spec.num_samples) == ("toy", (folder / "rows.json",), "alpaca", 5)
    assert spec.columns == Columns(prompt="instruction", query="more", response="output")
    assert spec.row_variables == (("name", "Ada"),)


def test_inline_entries_win_over_the_file(folder):
    names = catalog(folder, {"toy": {"file_name": "rows.json", "formatting": "openai"}}, toy={"file_name": "x.json"})
    assert names.resolve("toy").formatting == "openai"


def test_unknown_name_is_refused_with_the_nearest(folder):
    names = catalog(folder, alpaca_en={"file_name": "rows.json"}, identity={"file_name": "rows.json"})
    with pytest.raises(DataError, match=r"data set 'alpaca_zh' is neither .* did you mean alpaca_en\?"):
        names.resolve("alpaca_zh")
    with pytest.raises(DataError, match="known: alpaca_en, identity"):
        names.resolve("zzz")


def test_without_a_catalogue_the_missing_file_is_named(folder):
    with pytest.raises(DataError, match=r"the catalogue is empty \(.*dataset_info.json is missing\)"):
        catalog(folder).resolve("toy")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"hf_hub_url": "a/b"}, "uses hf_hub_url, which is known but not yet supported"),
        ({"file_name": "rows.json", "columns": {"images": "i"}}, "uses columns.images, which is known but not yet"),
        ({"formatting": "alpaca"}, "has no file_name"),
        ({"file_name": "gone.json"}, "gone.json does not exist"),
        ({"file_nam": "rows.json"}, r"info.json, data set 'toy': unknown key 'file_nam' \(did you mean 'file_name'"),
        ("rows.json", "expected an object with file_name, columns ..., found str"),
        ({"file_name": "rows.json", "split": "test"}, "split is 'test'; local files have the split 'train'"),
    ],
)
def test_entries_that_cannot_be_used_are_refused_only_when_used(folder, entry, message):
    names = catalog(folder, toy=entry, other={"file_name": "rows.json"})
    names.resolve("other")
    with pytest.raises(DataError, match=message):
        names.resolve("toy")


@pytest.mark.parametrize(
    ("split", "expected"), [("train", [0, 1, 2, 3]), ("train[1:3]", [1, 2]), ("train[:2]", [0, 1]), ("train[3:]", [3])]
)
def test_split_selects_a_range_of_rows(folder, split, expected):
    (folder / "many.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(4)), encoding="utf-8")
    spec = catalog(folder, toy={"file_name": "many.jsonl", "split": split}).resolve("toy")
    assert [row.values["n"] for chunk in read_rows(spec) for row in chunk] == expected


@pytest.mark.parametrize(
    ("name", "content", "formatting"),
    [
        ("a.jsonl", '{"messages": []}', "openai"),
        ("a.json", '[{"conversations": [], "id": 1}]', "sharegpt"),
        ("a.csv", "instruction,output\na,b\n", "alpaca"),
        ("a.txt", "hello\n", "text"),
    ],
)
def test_a_path_is_a_data_set_whose_format_shows_in_its_columns(folder, name, content, formatting):
    (folder / name).write_text(content, encoding="utf-8")
    names = catalog(folder)
    assert names.resolve(str(folder / name)).formatting == formatting
    assert names.resolve(name).files == (folder / name,)


def test_a_path_whose_columns_say_nothing_is_refused(folder):
    (folder / "odd.jsonl").write_text('{"foo": 1}', encoding="utf-8")
    with pytest.raises(DataError, match=r"the columns 'foo' are none of messages, conversations, instruction, text"):
        catalog(folder).resolve("odd.jsonl")


def test_a_file_that_is_not_json_is_named_with_its_line(folder):
    (folder / "dataset_info.json").write_text('{\n"a": }', encoding="utf-8")
    with pytest.raises(DataError, match=r"dataset_info.json:2: not valid JSON"):
        catalog(folder)
    for content in (b"\xff\xff", b"[" * 200_000):
        (folder / "dataset_info.json").write_bytes(content)
        with pytest.raises(DataError, match=r"dataset_info.json: the JSON cannot be read: "):
            catalog(folder)
    (folder / "dataset_info.json").write_text("[]", encoding="utf-8")
    with pytest.raises(DataError, match="expected an object of data sets by name, found list"):
        catalog(folder)


@pytest.mark.parametrize("place", ["ONLINE", "REMOTE:a/b"])
def test_catalogues_on_a_hub_are_not_yet_supported(place):
    with pytest.raises(DataError, match="known but not yet supported"):
        load_catalog(SimpleNamespace(dataset_dir=place, dataset_info=None, row_variables={}))
