from pathlib import Path

import pytest

from tunesmith.data.repeats import check_named_once
from tunesmith.data.sources import Columns, DatasetSpec
from tunesmith.errors import DataError


def spec(name, *files, **changes):
    return DatasetSpec(name=name, files=tuple(map(Path, files)), **changes)


def test_one_file_under_two_names_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.json").touch()
    (tmp_path / "link.json").symlink_to("m.json")
    for other in (tmp_path / "m.json", Path("link.json"), Path("..") / tmp_path.name / "m.json"):
        with pytest.raises(DataError, match=r"dataset names m and n, and both read \S*/m\.json, .*val_size"):
            check_named_once([spec("m", "m.json"), spec("x", "x.json"), spec("n", other)], "dataset")


def test_a_file_within_a_folder_that_is_named_too_is_refused():
    with pytest.raises(DataError, match=r"both read \S*/b\.json"):
        check_named_once([spec("all", "f/a.json", "f/b.json"), spec("b", "f/b.json")], "eval_dataset")


def test_parts_of_a_file_that_do_not_overlap_are_two_data_sets():
    first, rest = spec("first", "a.json", last_row=10), spec("rest", "a.json", first_row=10)
    check_named_once([first, rest], "dataset", val_size=0.1)
    with pytest.raises(DataError, match="both read"):
        check_named_once([first, spec("rest", "a.json", first_row=9)], "dataset", val_size=0.1)


def test_rows_that_are_read_in_two_ways_are_refused_only_where_some_are_held_back():
    ways = [spec("ask", "a.json"), spec("back", "a.json", columns=Columns(prompt="output", response="instruction"))]
    check_named_once(ways, "dataset")
    with pytest.raises(DataError, match="dataset names ask and back"):
        check_named_once(ways, "dataset", val_size=0.1)
