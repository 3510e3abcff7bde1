import pytest

from tunesmith.data.sources.dataset_spec import DEFAULT_TAGS, Columns, parse_entry
from tunesmith.errors import DataError


def parse(**entry):
    return parse_entry("toy", entry, "info.json")


def test_an_entry_has_the_defaults_of_its_format():
    assert parse(file_name="a.json").columns == Columns(prompt="instruction", query="input", response="output")
    assert parse(file_name="a", formatting="sharegpt").columns == Columns(messages="conversations")
    assert parse(file_name="a", formatting="openai").tags == DEFAULT_TAGS["openai"]


def test_columns_and_tags_that_are_given_leave_the_other_defaults():
    entry = parse(file_name="a", columns={"prompt": "q"}, tags={"user_tag": "me"})
    assert entry.columns == Columns(prompt="q", query="input", response="output")
    assert (entry.tags.user_tag, entry.tags.assistant_tag) == ("me", "gpt")
    assert parse(file_name="a", columns={"query": None}).columns.query is None


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"colums": {}}, r"info.json, data set 'toy': unknown key 'colums' \(did you mean 'columns'\?\)"),
        ({"qqqqqq": 1}, r"unknown key 'qqqqqq' \(known: file_name, "),
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
    entry = parse(hf_hub_url="a/b", columns={"images": "pics"}, subset="x")
    assert entry.later_keys == ("hf_hub_url", "subset", "columns.images")
