from dataclasses import fields

import pytest

from tunesmith.config.catalogue import COLUMN_KEYS, TAG_KEYS
from tunesmith.data.sources.dataset_spec import (
    DEFAULT_TAGS,
    Columns,
    Tags,
    complete_columns,
    complete_tags,
    parse_entry,
)
from tunesmith.errors import DataError


def parse(**entry):
    return parse_entry("toy", entry, "info.json")


def test_a_configuration_may_name_every_column_and_tag_that_rows_are_read_by():
    assert {field.name for field in fields(Columns)} | {"images", "videos", "audios"} == set(COLUMN_KEYS)
    assert {field.name for field in fields(Tags)} == set(TAG_KEYS)


def test_a_format_has_defaults_for_what_an_entry_does_not_name():
    assert complete_columns("alpaca", {}, "") == Columns(prompt="instruction", query="input", response="output")
    assert complete_columns("sharegpt", {}, "") == Columns(messages="conversations")
    assert complete_columns("alpaca", {"prompt": "q", "query": None}, "") == Columns(prompt="q", response="output")
    assert complete_tags("openai", {}, "") == DEFAULT_TAGS["openai"]
    tags = complete_tags("sharegpt", {"user_tag": "me"}, "")
    assert (tags.user_tag, tags.assistant_tag) == ("me", "gpt")


def test_an_entry_says_what_it_names_and_nothing_more():
    entry = parse(file_name="a", hf_hub_url="a/b", subset="x", columns={"prompt": "q"}, tags={"user_tag": "me"})
    assert entry.sources == {"hf_hub_url": "a/b", "file_name": "a"}
    assert (entry.columns, entry.tags, entry.formatting) == ({"prompt": "q"}, {"user_tag": "me"}, None)
    assert (entry.subset, entry.folder, entry.split) == ("x", None, "train")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"colums": {}}, r"info.json, data set 'toy': unknown key 'colums' \(did you mean 'columns'\?\)"),
        ({"qqqqqq": 1}, r"unknown key 'qqqqqq' \(known: hf_hub_url, "),
        ({"columns": {"promt": "q"}}, r"columns: unknown key 'promt' \(did you mean 'prompt'\?\)"),
        ({"tags": {"user": "q"}}, r"tags: unknown key 'user' \(did you mean 'user_tag'\?\)"),
        ({"columns": {"prompt": 3}}, "prompt is 3; expected the name of a column as text"),
        ({"tags": {"user_tag": None}}, "user_tag is None; expected the name of a column"),
        ({"file_name": 3}, "file_name is 3; expected text"),
        ({"ranking": "yes"}, "ranking is 'yes'; expected true or false"),
        ({"num_samples": True}, "num_samples is True; expected a whole number"),
        ({"num_samples": 0}, "num_samples is 0; it must be 1 or more"),
        ({"columns": []}, r"columns is \[\]; expected an object"),
        ({"formatting": "sharegtp"}, r"formatting is 'sharegtp' \(did you mean sharegpt\?\); known: alpaca, sharegpt"),
    ],
)
def test_mistakes_are_named_with_the_nearest_key(entry, message):
    with pytest.raises(DataError, match=message):
        parse(**entry)


def test_several_mistakes_are_named_together():
    with pytest.raises(DataError, match=r"'colums'.*; file_name is 3"):
        parse(colums={}, file_name=3)


def test_an_entry_that_is_no_object_is_refused():
    with pytest.raises(DataError, match=r"expected an object with file_name, columns \.\.\., found list"):
        parse_entry("toy", [], "info.json")


def test_what_comes_later_is_remembered_and_not_refused():
    assert parse(columns={"images": "pics", "prompt": "q"}).later_keys == ("columns.images",)
