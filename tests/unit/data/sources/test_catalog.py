import json
from types import SimpleNamespace

import pytest
from upath import UPath

from tunesmith.data.sources import Columns, load_catalog, read_rows
from tunesmith.errors import DataError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rows.json").write_text('[{"instruction": "a", "output": "b"}]', encoding="utf-8")
    return tmp_path


def catalog(folder, inline=None, **entries):
    if entries:
        (folder / "dataset_info.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(entries).encode())
    return load_catalog(settings(folder, inline))


def settings(folder, inline=None):
    return SimpleNamespace(
        dataset_dir=str(folder),
        dataset_info=inline,
        row_variables={"name": "Ada"},
        stringify_values=True,
        turn_order_policy="skip",
        bad_rows="error",
    )


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
        ({"om_hub_url": "a/b"}, "has only om_hub_url: the hub of Modelers is known but not yet supported"),
        ({"script_url": "load.py"}, "has only script_url: loading scripts are not run any more"),
        ({"cloud_file_name": "rows.json"}, "cloud_file_name is 'rows.json'; an address such as s3://"),
        ({"file_name": "rows.json", "columns": {"images": "i"}}, "uses columns.images, which is known but not yet"),
        ({"formatting": "alpaca"}, "names no place of its rows; set file_name"),
        ({"file_name": "gone.json"}, "gone.json does not exist"),
        ({"file_nam": "rows.json"}, r"info.json, data set 'toy': unknown key 'file_nam' \(did you mean 'file_name'"),
        ("rows.json", "expected an object with file_name, columns ..., found str"),
        ({"file_name": "rows.json", "split": "test"}, "split is 'test'; files have the split 'train'"),
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
    spec = catalog(folder, toy={"file_name": "many.jsonl", "split": split, "formatting": "text"}).resolve("toy")
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
    with pytest.raises(DataError, match=r"odd.jsonl: the columns 'foo' do not say how the rows are meant"):
        catalog(folder).resolve("odd.jsonl")


def test_the_format_is_told_by_the_rows_where_the_entry_does_not_and_the_reason_is_kept(folder):
    (folder / "turns.jsonl").write_text('{"chat": [{"role": "user", "content": "a"}]}', encoding="utf-8")
    spec = catalog(folder, toy={"file_name": "turns.jsonl", "columns": {"messages": "chat"}}).resolve("toy")
    assert (spec.formatting, spec.columns.messages, spec.declared) == ("openai", "chat", ("chat",))
    assert spec.notes == ("format openai, since the turns in column 'chat' have 'role' and 'content'",)


def test_names_that_keep_their_defaults_are_told_as_a_difference(folder):
    (folder / "rows.json").write_text('[{"q": "a", "input": "b", "output": "c"}]', encoding="utf-8")
    entry = {
        "file_name": "rows.json",
        "formatting": "alpaca",
        "columns": {"prompt": "q"},
        "tags": dict.fromkeys(("role_tag", "content_tag", "user_tag", "assistant_tag", "system_tag"), "x"),
    }
    difference = "(LLaMA-Factory has none where some are named)"
    assert catalog(folder, toy=entry).resolve("toy").notes == (
        f"columns that its entry does not name keep their defaults: query=input, response=output {difference}",
        (
            "tags that its entry does not name keep their defaults: observation_tag=observation, "
            f"function_tag=function_call {difference}"
        ),
    )


@pytest.mark.parametrize(
    ("beside", "columns", "notes"),
    [
        ({"loss_mask": [0, 1]}, {}, ("column 'loss_mask' says of each turn whether it is learnt, for sft and kto",)),
        ({"weight": 0.5, "train": None}, {}, ("column 'weight' is not used: what says whether turns are learnt is a",)),
        ({"weight": 0.5}, {"weight": None}, ()),
        ({"mask": [0, 1]}, {"loss_mask": "mask"}, ()),
        ({"images": ["a.png"], "videos": []}, {}, ("column 'images' is not read: pictures, films and sound are not",)),
        (
            {"system": "Be brief.", "tools": None, "history": [["a", "b"]]},
            {},
            ("column 'system' is not read, since the entry does not name it; `columns: {system: system}` does",),
        ),
        ({"system": "Be brief."}, {"system": None}, ()),
    ],
)
def test_columns_that_may_be_meant_otherwise_are_told(folder, beside, columns, notes):
    turns = [{"from": role, "value": "x"} for role in ("human", "gpt")]
    (folder / "rows.json").write_text(json.dumps([{"conversations": turns, **beside}]))
    entry = {"file_name": "rows.json", "formatting": "sharegpt", "columns": {"messages": "conversations", **columns}}
    found = catalog(folder, toy=entry).resolve("toy").notes
    assert len(found) == len(notes)
    assert all(note.startswith(start) for note, start in zip(found, notes, strict=True))


def test_a_catalogue_that_has_a_name_twice_is_refused(folder):
    text = '{"toy": {"file_name": "rows.json"}, "toy": {"file_name": "other.json"}}'
    (folder / "dataset_info.json").write_text(text)
    with pytest.raises(DataError, match=r"dataset_info\.json: the data set 'toy' is there twice; rename or"):
        catalog(folder)


def test_what_a_file_has_no_use_for_is_told(folder):
    entry = {"file_name": "rows.json", "formatting": "alpaca", "subset": "en", "folder": "x"}
    assert catalog(folder, toy=entry).resolve("toy").notes == (
        "subset and folder is not used: only repositories on a hub have one",
    )


def test_an_empty_row_at_the_start_does_not_hide_the_format(folder):
    (folder / "odd.jsonl").write_text('{}\n{"text": "a"}\n')
    assert catalog(folder).resolve("odd.jsonl").formatting == "text"


def test_a_table_without_names_of_columns_is_pointed_at(folder):
    (folder / "odd.csv").write_text("What is 1 + 1?,2\nWhat is 1 + 2?,3\n")
    with pytest.raises(
        DataError, match=r"odd\.csv \(its first line names the columns\): the columns 'What is 1 \+ 1\?'"
    ):
        catalog(folder).resolve("odd.csv")


def test_patterns_and_addresses_are_data_sets(folder):
    place = UPath("memory://shelf/rows.json")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text('[{"text": "a"}]')
    assert catalog(folder).resolve("r*.json").files == (folder / "rows.json",)
    assert catalog(folder).resolve(str(place)).formatting == "text"
    names = catalog(folder, toy={"cloud_file_name": str(place), "file_name": "gone.json"})
    assert [str(file) for file in names.resolve("toy").files] == [str(place)]
    place.fs.rm("/shelf", recursive=True)


def test_how_all_data_sets_are_read_reaches_each(folder):
    spec = catalog(folder).resolve("rows.json")
    assert (spec.row_variables, spec.stringify_values, spec.turn_order_policy) == ((("name", "Ada"),), True, "skip")
    assert spec.bad_rows == "error"


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
