import pytest

from tunesmith.config.catalogue import CatalogueError, find_entry_problems, find_missing_file, read_catalogue


def test_a_folder_without_a_catalogue_lists_nothing(tmp_path):
    assert read_catalogue(tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[" * 200_000, "cannot be read as JSON"),
        ("[]", "has to map names to descriptions"),
        ('{\n"a": {"file_name": "a.json"},\n}', r"line \d: .*(comma too many|trailing comma)"),
        ('{"a": {},, "b": {}}', "line 1: .* at column 10; there is a comma too many"),
        ('{ // mine\n"a": {}}', "line 1: .* at column 3; JSON has no comments"),
        ("{'a': {}}", "JSON has double quotes only"),
        (" \n", "line 2: the file is empty; write {} for a catalogue without data sets"),
        ('{"a" 1}', "line 1: Expecting ':' delimiter at column 6.$"),
    ],
    ids=["cut", "endless", "list", "comma", "commas", "comment", "quotes", "empty", "colon"],
)
def test_a_broken_catalogue_is_refused(tmp_path, text, message):
    (tmp_path / "dataset_info.json").write_text(text)
    with pytest.raises(CatalogueError, match=message):
        read_catalogue(tmp_path)


def test_a_file_in_the_place_of_the_folder_is_refused_as_such(tmp_path):
    (tmp_path / "rows.json").write_text("[]")
    with pytest.raises(CatalogueError, match=r"`dataset_dir` is '\S*rows\.json', which is a file; name the folder"):
        read_catalogue(tmp_path / "rows.json")


def test_keys_that_mean_nothing_are_found_at_any_depth():
    catalogue = {
        "good": {"file_name": "a.json", "columns": {"prompt": "q"}, "tags": None},
        "bad": {"file_nam": "a.json", "columns": [1], "tags": {"zzz": 1}},
        "worse": "a.json",
    }
    assert [
        (path, message.split(".")[0].partition(", response")[0]) for path, message in find_entry_problems(catalogue)
    ] == [
        (("bad", "file_nam"), "is not a key of a data set"),
        (
            ("bad", "columns"),
            "has to be a mapping with keys from prompt, query",
        ),
        (("bad", "tags", "zzz"), "is not a key of a data set"),
        (("worse",), "has to be a mapping such as {file_name: rows"),
    ]


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ({"file_name": 3}, ("file_name", "is 3; it has to be text.")),
        ({"file_name": "a.json", "ranking": "maybe"}, ("ranking", "is 'maybe'; it has to be true or false.")),
        ({"file_name": "a.json", "num_samples": True}, ("num_samples", "is True; it has to be a whole number.")),
        ({"file_name": "a.json", "num_samples": 0}, ("num_samples", "is 0; allowed is 1 or more.")),
        ({"file_name": "a.json", "columns": {"query": 5}}, ("columns", "query", "is 5; it has to be a name, as text.")),
        (
            {"file_name": "a.json", "tags": {"role_tag": None}},
            ("tags", "role_tag", "is None; it has to be a name, as text."),
        ),
        (
            {"file_name": "a.json", "formatting": "sharegtp"},
            ("formatting", "is 'sharegtp'; allowed is alpaca, sharegpt, openai, text. Did you mean `sharegpt`?"),
        ),
        (
            {"split": "train"},
            ("names no place of its rows; set file_name, cloud_file_name, hf_hub_url or ms_hub_url.",),
        ),
    ],
)
def test_values_that_cannot_be_meant_are_found(entry, found):
    assert list(find_entry_problems({"mine": entry})) == [(("mine", *found[:-1]), found[-1])]


def test_nothing_is_as_good_as_leaving_a_key_out():
    entry = {"file_name": "a.json", "formatting": None, "num_samples": None, "columns": {"query": None}, "tags": None}
    assert list(find_entry_problems({"mine": entry})) == []


def test_a_file_that_is_not_there_is_found_unless_the_rows_are_elsewhere(tmp_path):
    (tmp_path / "a.json").touch()
    assert find_missing_file({"file_name": "b.json"}, tmp_path) == "b.json"
    assert find_missing_file({"file_name": "*.csv"}, tmp_path) == "*.csv"
    fine = (
        {"file_name": "a.json"},
        {"file_name": "*.json"},
        {"file_name": "."},
        {"file_name": "b.json", "hf_hub_url": "owner/name"},
        {"file_name": "b.json", "cloud_file_name": "s3://bucket/b.json"},
        {"file_name": "s3://bucket/b.json"},
        {"file_name": 3},
        {"hf_hub_url": "owner/name"},
        "no entry",
    )
    assert [find_missing_file(entry, tmp_path) for entry in fine] == [None] * len(fine)
