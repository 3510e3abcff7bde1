import pytest

from tunesmith.config.catalogue import CatalogueError, check_entries, read_catalogue


def test_a_folder_without_a_catalogue_lists_nothing(tmp_path):
    assert read_catalogue(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[" * 200_000, "cannot be read as JSON"),
        ("[]", "has to map names to descriptions"),
    ],
    ids=["cut", "endless", "list"],
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
    assert [(path, message.split(".")[0].partition(", response")[0]) for path, message in check_entries(catalogue)] == [
        (("bad", "file_nam"), "is not a key of a data set"),
        (
            ("bad", "columns"),
            "has to be a mapping with keys from prompt, query",
        ),
        (("bad", "tags", "zzz"), "is not a key of a data set"),
        (("worse",), "has to be a mapping such as {file_name: rows"),
    ]
